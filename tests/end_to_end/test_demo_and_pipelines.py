import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image  # noqa: TID253 - a test may load what it compares with

from loaders import open_dataset
from preprocess.cli import prep
from tests.synthetic import write_image_tree

ROOT = Path(__file__).parents[2]


def test_the_demo_goes_the_whole_way_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        result = CliRunner().invoke(prep, ["demo"])
        assert result.exit_code == 0, result.output
    assert "forest_damaged.jpg: cannot decode this JPEG" in result.output
    assert "all good" in result.output
    assert "128 pixels: 21 steps" in result.output
    ds = open_dataset("prep-demo/shards", split="validation", size=64)
    assert len(ds) == 30
    assert len(ds.classes) == 3


def test_the_demo_leaves_a_folder_alone_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    result = CliRunner().invoke(prep, ["demo", str(tmp_path)])
    assert result.exit_code == 1
    assert "not empty, and no earlier demo made it" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_image_classification_trains_small_then_large(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    write_image_tree(photos, ["ant", "bee"], 12, size=(64, 48), splits=["train", "validation"])
    script = ROOT / "pipelines" / "images_classification.py"
    command = [sys.executable, script, photos, tmp_path / "out", "--sizes", "16", "32"]
    command += ["--epochs", "1", "--batch-size", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines if "accuracy" in line] == [
        "16 pixels",
        "32 pixels",
    ]


def test_image_segmentation_trains_on_photos_and_masks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(24):
        name = f"{'train' if number < 16 else 'validation'}/{number}"
        mask = np.kron(rng.integers(0, 2, (4, 6)), np.ones((8, 8))).astype(np.uint8)
        picture = np.stack([200 * mask, 90 + 0 * mask, 200 - 200 * mask], axis=2)
        for folder, array in (("photos", picture), ("masks", mask)):
            path = tmp_path / folder / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(array.astype(np.uint8)).save(path)
    script = ROOT / "pipelines" / "images_segmentation.py"
    command = [sys.executable, script, tmp_path / "photos", tmp_path / "masks", tmp_path / "out"]
    command += ["--classes", "2", "--size", "48", "--epochs", "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout.split("accuracy")[1]) > 0.8


@pytest.mark.parametrize("script", sorted((ROOT / "pipelines").glob("*.py")), ids=lambda p: p.name)
def test_pipelines_stay_short_and_use_public_names_alone(script: Path) -> None:
    lines = script.read_text().splitlines()
    assert len(lines) <= 80
    imports = [line for line in lines if line.startswith(("from loaders", "from preprocess"))]
    assert imports
    assert all(line.split()[1] in {"loaders", "preprocess"} for line in imports)
