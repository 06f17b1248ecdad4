"""What starting costs: nothing heavy is loaded before it is used."""

import importlib
import json
import subprocess
import sys

import pytest
import torch

from loaders import open_dataset, open_tokens
from preprocess.cli import prep
from tests.tokenizers_made import make_bpe

HEAVY = ("torch", "cv2", "PIL", "joblib", "zarr", "rich", "simplejpeg")
LOOK = "import json, sys; print(json.dumps(sorted(m for m in sys.modules if '.' not in m)))"


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LOOK}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("code", "more"),
    [
        ("import loaders", ("numpy", "click")),
        ("import loaders.errors", ("numpy", "click")),
        ("import loaders.format.spec", ("click",)),
        ("import loaders.format.containers", ("click",)),
        ("import preprocess", ("numpy", "click")),
        ("import preprocess.cli", ("numpy",)),
    ],
)
def test_importing_a_module_loads_nothing_heavy(code: str, more: tuple[str, ...]) -> None:
    assert not loaded_by(code) & {*HEAVY, *more}


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["images", "--help"], ["images"], ["imagse"]]
)
def test_help_and_usage_errors_load_nothing_heavy(words: list[str]) -> None:
    code = (
        "from preprocess.cli import prep\n"
        f"try: prep({words!r})\nexcept SystemExit as end: assert end.code in (0, 2), end.code"
    )
    assert not loaded_by(code) & {*HEAVY, "numpy"}


def test_looking_at_a_dataset_loads_no_decoder_and_no_torch(tmp_path) -> None:
    code = (
        "from preprocess.cli import prep\n"
        f"try: prep(['info', {str(tmp_path)!r}])\nexcept SystemExit as end: assert end.code == 1"
    )
    assert not loaded_by(code) & {"torch", "cv2", "PIL", "simplejpeg", "zarr", "rich"}


@pytest.mark.slow
def test_a_process_that_prepares_tokens_loads_no_torch_no_pandas_and_is_silent(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("some words")
    words = ["tokens", tmp_path / "a.txt", tmp_path / "out", "--tokenizer", make_bpe(tmp_path)]
    code = (
        "import sys\nfrom preprocess.cli import main\n"
        f"sys.argv[1:] = {[*map(str, words)]!r}\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        "assert sys.modules.pop('torch') is None"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LOOK}"], capture_output=True, text=True, check=True
    )
    assert not {"torch", "pandas"} & set(json.loads(done.stdout.splitlines()[-1]))
    assert done.stderr == ""
    assert len(open_tokens(tmp_path / "out").documents()) == 1


@pytest.mark.slow
def test_a_process_that_prepares_photos_does_without_torch_s_package(tmp_path) -> None:
    from PIL import Image

    (tmp_path / "photos").mkdir()
    Image.new("RGB", (40, 30), "red").save(tmp_path / "photos" / "red.png")
    words = ["images", tmp_path / "photos", tmp_path / "out", "--sizes", "16"]
    code = f"from preprocess.cli import prep\nprep({[*map(str, words)]!r}, standalone_mode=False)\n"
    assert "cv2" in (loaded := loaded_by(code))
    assert not {"torch", "pandas", "zarr", "pyarrow"} & loaded
    pixels = open_dataset(tmp_path / "out").with_size(16)[0]["image"]
    assert (pixels == torch.tensor([255, 0, 0], dtype=torch.uint8)[:, None, None]).all()


def test_a_command_that_shares_its_process_keeps_torch_within_reach(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("some words")
    words = ["tokens", tmp_path / "a.txt", tmp_path / "out", "--tokenizer", make_bpe(tmp_path)]
    prep([*map(str, words)], standalone_mode=False)
    assert sys.modules["torch"] is torch


@pytest.mark.parametrize("name", ["loaders", "preprocess"])
def test_public_names_are_sorted_and_can_be_imported(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__all__ == sorted(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    for public in package.__all__:
        assert getattr(package, public).__doc__


@pytest.mark.parametrize("name", ["loaders", "preprocess"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = importlib.import_module(name).no_such_name
