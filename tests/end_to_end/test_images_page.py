"""The page on images: its commands and code run as they stand, and name what there is."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image  # noqa: TID253 - a test may load what it compares with

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "preprocess" / "IMAGES.md").read_text()
README = (ROOT / "README.md").read_text()
PREP = Path(sys.executable).with_name("prep")


def section(title: str, language: str, text: str = PAGE) -> str:
    marks = "##" if text is PAGE else "###"
    part = text.split(f"\n{marks} {title}\n")[1].split(f"\n{marks} ", maxsplit=1)[0]
    return re.findall(rf"```{language}\n(.*?)```", part, re.DOTALL)[0]


def run(command: str, folder: Path) -> None:
    words = command.split()
    assert words[0] == "prep"
    # The way is what is shown; the sides are cut down to keep the test short.
    small = [re.sub(r"^(224|512|640)$", "32", word) for word in words[1:]]
    done = subprocess.run([PREP, *small], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def execute(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"predicted": torch.zeros(2, 4), "model": lambda *_: torch.zeros(1)}
    code = code.replace('device="cuda"', "").replace("batch_size=16", "batch_size=4")
    exec(code.replace("size=512", "size=32"), names)
    return names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    images, lines = [], ["file_name,species,weight,age,patient"]
    for below in ("photos", "masks"):
        (tmp_path / below).mkdir()
    for number in range(40):
        pixels = rng.integers(0, 256, (24, 36, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{number}.png")
        Image.fromarray(pixels[:, :, 0] % np.uint8(21)).save(tmp_path / f"masks/{number}.png")
        lines.append(f"{number}.png,{'ant' if number % 2 else 'bee'},{number}.5,{number},p{number}")
        images.append({"id": number, "file_name": f"{number}.png", "width": 36, "height": 24})
    document = {
        "images": images,
        "annotations": [{"image_id": 0, "category_id": 1, "bbox": [1, 2, 5, 6]}],
        "categories": [{"id": 1, "name": "bug"}],
    }
    (tmp_path / "instances_train.json").write_text(json.dumps(document))
    (tmp_path / "metadata.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_masks_run_as_the_readme_shows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(section("Masks", "bash", README), folder)
    batch = execute(section("Masks", "python", README), folder, monkeypatch)["batch"]
    assert batch["mask"].dtype == torch.uint8
    assert batch["mask"].shape == (4, 32, 32)
    names = execute(section("Fits, and the way back", "python"), folder, monkeypatch)
    assert names["boxes"].shape == (2, 4)


def test_storage_runs_as_the_page_shows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in section("Storage", "bash").splitlines():
        run(command, folder)
    images = execute(section("Storage", "python"), folder, monkeypatch)["images"]
    assert images.dtype == torch.uint8
    assert images.shape == (4, 3, 32, 32)


def test_buckets_run_as_the_page_shows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(section("Buckets", "bash").replace("1024", "--bucket-step 8"), folder)
    names = execute(section("Buckets", "python"), folder, monkeypatch)
    assert names["ds"].buckets == {(24, 40): 0, (32, 32): 0, (40, 24): 40}
    assert names["batch"]["image"].shape == (4, 3, 24, 40)


def test_boxes_run_as_the_readme_shows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    title = "Boxes of a COCO json"
    run(section(title, "bash", README), folder)
    batch = execute(section(title, "python", README), folder, monkeypatch)["batch"]
    assert len(batch["boxes"]) == len(batch["box_labels"]) == 4


def test_copies_in_two_splits_are_reported_as_the_readme_shows(tmp_path: Path) -> None:
    for name in ("train/tom.jpg", "test/cat.jpg"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True)
        Image.new("RGB", (40, 30), "orange").save(path)
    title = "Copies in two splits"
    words = section(title, "bash", README).split()
    done = subprocess.run(
        [PREP, *words[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.split() == section(title, "text", README).split()
    run(f"{section(title, 'bash', README)} --allow-leaks", tmp_path)


def test_tables_and_splits_run_as_the_page_shows(folder: Path) -> None:
    run(section("Labels and numbers out of a table", "bash"), folder)
    run(section("Splits without split folders", "bash") + " --overwrite", folder)
    manifest = json.loads((folder / "out/manifest.json").read_bytes())
    assert set(manifest["splits"]) == {"train", "validation", "test"}


def test_more_photos_are_added_as_the_page_shows(folder: Path) -> None:
    more = folder / "more"
    more.mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (24, 36, 3), np.uint8)
    Image.fromarray(pixels).save(more / "a photo with a name longer than all before.jpg")
    first, copy, second = section("More photos", "bash").splitlines()
    run(first, folder)
    subprocess.run(copy, cwd=folder, shell=True, check=True)
    run(second, folder)
    manifest = json.loads((folder / "out/manifest.json").read_bytes())
    assert sum(manifest["splits"]["train"]["counts"]) == 41


def test_every_option_that_the_page_names_exists() -> None:
    known = subprocess.run([PREP, "images", "--help"], capture_output=True, text=True, check=True)
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    for option in set(re.findall(r"`(--[a-z-]+)", prose)):
        assert option in known.stdout, option


def test_options_of_the_metadata_without_it_are_refused(folder: Path) -> None:
    for words in (["--label", "species"], ["--target", "age"], ["--group-by", "patient"]):
        command = [PREP, "images", "photos", "out", "--sizes", "8", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert "Error: " in done.stderr
