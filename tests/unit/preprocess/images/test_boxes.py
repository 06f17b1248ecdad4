"""Boxes go with their photos, out of COCO's json and YOLO's text files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image  # noqa: TID253 - a test may load what it compares with

from loaders import (
    Augment,
    Loader,
    SelectionError,
    boxes_to_original,
    boxes_to_stored,
    open_dataset,
)
from preprocess import ImageOptions, RunOptions, SourceError, images_to_shards
from preprocess.images.boxes import fit_boxes
from preprocess.images.resize import FITS, Fit, fit_geometry
from preprocess.paired import Boxes

SIZES = {"a.png": (64, 48), "b/c.png": (48, 64), "d.png": (30, 30)}
RED = (255, 0, 0)


def write_photos(folder: Path) -> None:
    """Write black photos, each with a red rectangle where `square` says."""
    for name, (width, height) in SIZES.items():
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", (width, height))
        left, top, right, bottom = square(name)
        image.paste(RED, (left, top, right, bottom))
        image.save(path)


def square(name: str) -> tuple[int, int, int, int]:
    width, height = SIZES[name]
    return width // 3, height // 3, width // 3 + 12, height // 3 + 9


def coco(**changes: Any) -> dict[str, Any]:
    images = [
        {"id": 7 + number, "file_name": name, "width": size[0], "height": size[1]}
        for number, (name, size) in enumerate(SIZES.items())
    ]
    annotations = []
    for number, name in enumerate(list(SIZES)[:2]):
        left, top, right, bottom = square(name)
        box = [left, top, right - left, bottom - top]
        annotations.append({"image_id": 7 + number, "category_id": 90, "bbox": box})
    annotations.append({"image_id": 7, "category_id": 3, "bbox": [0, 0, 1.5, 2.25]})
    annotations.append({"image_id": 8, "category_id": 3, "bbox": [0, 0, 9, 9], "iscrowd": 1})
    categories = [{"id": 90, "name": "square"}, {"id": 3, "name": "corner"}]
    whole = {"images": images, "annotations": annotations, "categories": categories}
    return {**whole, **changes}


def prepare(folder: Path, boxes: Path, **options: Any) -> Any:
    chosen = ImageOptions(**{"sizes": ((32, 32), (16, 16)), "boxes": boxes, **options})
    run = RunOptions(overwrite=True, workers=1)
    return images_to_shards(folder / "photos", folder / "out", chosen, run)


def write_coco(folder: Path, document: Any) -> Path:
    path = folder / "boxes.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("fit", FITS)
def test_boxes_of_coco_lie_where_the_photos_show_them(tmp_path: Path, fit: Fit) -> None:
    write_photos(tmp_path)
    report = prepare(
        tmp_path, write_coco(tmp_path, coco()), fit=fit, resample="box", background="black"
    )
    assert not report.skipped
    assert any("1 box of crowds is left out" in note for note in report.notes)
    for size in (32, 16):
        ds = open_dataset(tmp_path / "out", size=size)
        assert ds.manifest.recipe["box_classes"] == ["corner", "square"]
        for index, name in enumerate(list(SIZES)[:2]):
            sample = ds[index]
            (place,) = np.flatnonzero(sample["box_labels"].numpy() == 1)
            box = sample["boxes"][place]
            expected = boxes_to_stored(torch.tensor(square(name)).double(), sample["transform"])
            torch.testing.assert_close(box.double(), expected, atol=1e-4, rtol=0)
            left, top, right, bottom = box.tolist()
            red = sample["image"][0] > 127
            rows, columns = red.any(1).nonzero(), red.any(0).nonzero()
            assert abs(columns.min() - left) <= 1
            assert abs(columns.max() + 1 - right) <= 1
            assert abs(rows.min() - top) <= 1
            assert abs(rows.max() + 1 - bottom) <= 1
        assert ds[2]["boxes"].shape == (0, 4)
        assert ds[2]["box_labels"].dtype == torch.int64


def test_batches_of_boxes_are_lists_or_padded(tmp_path: Path) -> None:
    write_photos(tmp_path)
    prepare(tmp_path, write_coco(tmp_path, coco()), fit="pad")
    lists = open_dataset(tmp_path / "out", size=32)
    batch = next(iter(Loader(lists, 3, shuffle=False)))
    assert [len(boxes) for boxes in batch["boxes"]] == [2, 1, 0]
    with pytest.raises(SelectionError, match="augment cuts 'image' alone"):
        Loader(lists, 3, augment=Augment(flip=0.5))
    resident = Loader(lists, 3, shuffle=False, residency="ram")
    for boxes, again in zip(batch["boxes"], next(iter(resident))["boxes"], strict=True):
        assert torch.equal(boxes, again)
    padded = open_dataset(tmp_path / "out", size=32, padded=True)
    filled = next(iter(Loader(padded, 3, shuffle=False)))
    assert filled["boxes"].shape == (3, 2, 4)
    assert filled["boxes_valid"].tolist() == [[True, True], [True, False], [False, False]]
    assert filled["box_labels"].shape == (3, 2)
    for boxes, row in zip(batch["boxes"], filled["boxes"], strict=True):
        assert torch.equal(row[: len(boxes)], boxes)


def test_yolo_files_say_the_same_in_shares(tmp_path: Path) -> None:
    write_photos(tmp_path)
    folder = tmp_path / "labels"
    (folder / "b").mkdir(parents=True)
    for name in list(SIZES)[:2]:
        width, height = SIZES[name]
        left, top, right, bottom = square(name)
        line = (
            f"1 {(left + right) / 2 / width:.9f} {(top + bottom) / 2 / height:.9f} "
            f"{(right - left) / width:.9f} {(bottom - top) / height:.9f}\n"
        )
        (folder / name).with_suffix(".txt").write_text(line)
    (folder / "classes.txt").write_text("corner\nsquare\n")
    report = prepare(tmp_path, folder)
    assert any("1 photos have no file of boxes" in note for note in report.notes)
    ds = open_dataset(tmp_path / "out", size=32)
    assert ds.manifest.recipe["box_classes"] == ["corner", "square"]
    for index, name in enumerate(list(SIZES)[:2]):
        found = boxes_to_original(ds[index]["boxes"].double(), ds[index]["transform"])
        torch.testing.assert_close(found[0], torch.tensor(square(name)).double(), atol=1e-3, rtol=0)


def test_yolo_files_may_end_in_capitals_and_begin_with_a_mark_of_their_order(
    tmp_path: Path,
) -> None:
    write_photos(tmp_path)
    folder = tmp_path / "labels"
    folder.mkdir()
    stem = Path(next(iter(SIZES))).with_suffix("")
    (folder / stem).with_suffix(".TXT").write_bytes(b"\xef\xbb\xbf0 0.5 0.5 1 1\r\n")
    prepare(tmp_path, folder)
    assert len(open_dataset(tmp_path / "out", size=32)[0]["boxes"]) == 1
    (folder / stem).with_suffix(".txt").write_text("0 0.5 0.5 1 1\n")
    if len(list(folder.iterdir())) > 1:  # where case tells names apart
        with pytest.raises(SourceError, match=f"two files of boxes for {stem}"):
            prepare(tmp_path, folder)


@given(
    width=st.integers(1, 500),
    height=st.integers(1, 500),
    size=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    fit=st.sampled_from(FITS),
    corners=st.lists(st.tuples(*[st.floats(0, 1)] * 4), max_size=5),
)
def test_boxes_are_cut_at_what_was_taken_and_never_invented(
    width: int, height: int, size: tuple[int, int], fit: Fit, corners: list[Any]
) -> None:
    if fit in {"shortest", "longest"}:
        size = (min(size), min(size))
        if max(width, height) * size[0] > 16000 * min(width, height):
            return
    rows = tuple((0, min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in corners)
    place = fit_geometry(width, height, size, fit)
    found, kept = fit_boxes(Boxes(rows, None), (width, height), place)
    transform = torch.tensor([width, height, *place.source, *place.target])
    for box, index in zip(found, kept, strict=True):
        left, top, right, bottom = place.target
        assert left <= box[0] < box[2] <= right
        assert top <= box[1] < box[3] <= bottom
        whole = torch.tensor(rows[index][1:], dtype=torch.float64)
        whole *= torch.tensor([width, height, width, height])
        moved = boxes_to_stored(whole, transform).numpy()
        low, high = np.array([left, top] * 2), np.array([right, bottom] * 2)
        np.testing.assert_allclose(box, moved.clip(low, high), atol=1e-3)


def test_a_photo_that_is_not_listed_or_of_another_size_is_refused_by_name(tmp_path: Path) -> None:
    write_photos(tmp_path)
    document = coco()
    del document["images"][2]
    document["images"][0]["width"], document["images"][0]["height"] = 48, 64
    report = prepare(tmp_path, write_coco(tmp_path, document))
    reasons = dict(report.skipped)
    assert "of a picture of 48 x 64, it is 64 x 48 upright" in reasons["a.png"]
    assert "boxes.json does not list it" in reasons["d.png"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": None}, "images: expected a list"),
        ({"annotations": [{"image_id": 99, "category_id": 3}]}, r"annotations\[0\]: of an image"),
        (
            {"annotations": [{"image_id": 7, "category_id": 3, "bbox": [1, 1, -4, 2]}]},
            r"annotations\[0\]: a box from 1.0, 1.0 to -3.0",
        ),
        (
            {"annotations": [{"image_id": 7, "category_id": 3, "bbox": [1, 1, float("nan"), 2]}]},
            "a box from",
        ),
        (
            {"annotations": [{"image_id": 7, "category_id": 3, "bbox": [1, 1, 4]}]},
            r"annotations\[0\]: expected a bbox of left, top, width, height",
        ),
        (
            {"annotations": [{"image_id": 7, "category_id": 3, "bbox": [1, 1, 4, "wide"]}]},
            r"annotations\[0\]: expected a bbox",
        ),
        ({"annotations": [{"image_id": 7, "category_id": 3}]}, r"annotations\[0\]: expected"),
        (
            {"images": [{"id": 7, "file_name": "a", "width": float("inf"), "height": 1}]},
            "width: expected a whole number of pixels",
        ),
        ({"categories": [{"id": 3, "name": n} for n in "ab"]}, "categories have one id"),
        (
            {"images": [{"id": 7, "file_name": n, "width": 9, "height": 9} for n in "ab"]},
            "images have one id",
        ),
        ({"images": [{"id": n, "file_name": "a", "width": 1, "height": 1} for n in (1, 2)]}, "two"),
    ],
)
def test_a_coco_json_that_cannot_be_names_the_place(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write_photos(tmp_path)
    document = coco(**change)
    if "images" in change:
        document["annotations"] = []
    with pytest.raises(SourceError, match=message):
        prepare(tmp_path, write_coco(tmp_path, document))
    (tmp_path / "boxes.json").write_text("{")
    with pytest.raises(SourceError, match="no JSON"):
        prepare(tmp_path, tmp_path / "boxes.json")
    with pytest.raises(SourceError, match="cannot be read"):
        prepare(tmp_path, tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    "line",
    [
        "0 0.5 0.5 0.1",
        "x 0.5 0.5 0.1 0.1",
        "0 0.5 0.5 1.1 0.1",
        "-1 0 0 0 0",
        "999999999999 0.5 0.5 0.1 0.1",
    ],
)
def test_a_line_of_yolo_that_cannot_be_is_named(tmp_path: Path, line: str) -> None:
    write_photos(tmp_path)
    folder = tmp_path / "labels"
    folder.mkdir()
    with pytest.raises(SourceError, match=r"no .txt file"):
        prepare(tmp_path, folder)
    (folder / "a.txt").write_text(f"\n{line}\n")
    with pytest.raises(SourceError, match=r"a\.txt: line 2"):
        prepare(tmp_path, folder)


def test_two_photos_of_one_file_of_boxes_are_refused(tmp_path: Path) -> None:
    write_photos(tmp_path)
    Image.new("RGB", (9, 9)).save(tmp_path / "photos" / "a.jpg")
    folder = tmp_path / "labels"
    folder.mkdir()
    (folder / "d.txt").write_text("0 0.5 0.5 0.1 0.1")
    assert not prepare(tmp_path, folder).skipped
    (folder / "a.txt").write_text("0 0.5 0.5 0.1 0.1")
    with pytest.raises(SourceError, match=r"a\.jpg and a\.png have one file of boxes, a\.txt"):
        prepare(tmp_path, folder)


def test_changed_boxes_are_another_input(tmp_path: Path) -> None:
    write_photos(tmp_path)
    first = prepare(tmp_path, write_coco(tmp_path, coco()))
    document = coco()
    document["annotations"][0]["bbox"][0] += 1
    assert prepare(tmp_path, write_coco(tmp_path, document)).run_hash != first.run_hash
