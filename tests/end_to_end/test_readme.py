import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from loaders import open_dataset
from tests.synthetic import write_image_tree
from tests.token_commands import call

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_photos_to_batches_code_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_image_tree(tmp_path / "photos", ["ant", "bee"], 40, size=(64, 48), splits=["train"])
    monkeypatch.chdir(tmp_path)
    section = README.split("## Photos to batches")[1]
    command = blocks("bash", section)[0].split()
    assert command[0] == "prep"
    prep = Path(sys.executable).with_name("prep")
    subprocess.run([prep, *command[1:]], check=True)
    code = blocks("python", section)[0]
    assert code.count('"cuda"') == 2
    backbone = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 2)
    )
    names = {"backbone": backbone, "loss": torch.nn.functional.cross_entropy}
    exec(code.replace('"cuda"', '"cpu"'), names)  # the same lines on a machine without a GPU
    assert backbone[2].weight.grad is not None


def test_the_tables_to_batches_code_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{'no' if n % 3 else 'yes'},{n % 7},{'ab'[n % 2]}\n" for n in range(6000)]
    (tmp_path / "rides.csv").write_text("tip,age,city\n" + "".join(rows))
    section = README.split("## Tables to batches")[1]
    command = blocks("bash", section)[0].split()
    assert command[0] == "prep"
    prep = Path(sys.executable).with_name("prep")
    subprocess.run([prep, *command[1:]], check=True)
    given = []

    def network(numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
        given.append((numeric.shape, numeric.dtype, categorical.shape, categorical.dtype))
        return torch.zeros(len(numeric), 2)

    names = {"network": network, "cross_entropy": torch.nn.functional.cross_entropy}
    exec(blocks("python", section)[0].replace('"cuda"', '"cpu"'), names)
    assert given == [((4096, 1), torch.float32, (4096, 1), torch.int64)]


def test_the_format_page_reads_a_dataset_with_numpy_alone(
    make_dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "loaders" / "format" / "README.md").read_text()
    path = make_dataset()
    code = blocks("python", page)[1].replace("image_512", "image_32").replace("OUT", str(path))
    names: dict[str, object] = {}
    exec(code, names)
    assert names["images"].shape[1:] == (32, 32, 3)
    assert names["names"][0].startswith(b"train/ant/")


def test_the_format_page_reads_a_stored_jpeg(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["ant"], 9)
    words = ["--sizes", "32", "--store", "jpeg"]
    assert call("images", tmp_path / "photos", tmp_path / "out", *words).exit_code == 0
    page = (ROOT / "loaders" / "format" / "README.md").read_text()
    code = blocks("python", page)[0].replace("image_512", "image_32")
    names: dict[str, object] = {}
    exec(code.replace("OUT", str(tmp_path / "out")), names)
    shown = open_dataset(tmp_path / "out")[7]["image"].permute(1, 2, 0)
    assert np.array_equal(names["picture"], shown)


PAGES = ["README.md", "CONTRIBUTING.md", "loaders/format/README.md"]
PAGES += ["preprocess/IMAGES.md", "preprocess/TABLES.md", "preprocess/TOKENS.md"]


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        assert "://" in target or (ROOT / page).parent.joinpath(target).exists(), target


def test_every_option_and_command_that_the_readme_names_exists() -> None:
    prep = Path(sys.executable).with_name("prep")
    known = subprocess.run([prep, "images", "--help"], capture_output=True, text=True, check=True)
    for command in ("check", "info", "table"):
        run = subprocess.run([prep, command, "--help"], capture_output=True, text=True, check=True)
        known.stdout += run.stdout
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    for option in set(re.findall(r"`(--[a-z-]+)", prose)):
        assert option in known.stdout, option
