"""Files of boxes as exporters write them: rounded shares, boxes of no area, other spellings."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image  # noqa: TID253 - a test may load what it compares with

from loaders import open_dataset
from preprocess import ImageOptions, RunOptions, SourceError, images_to_shards
from preprocess.images.boxes import read_boxes
from preprocess.images.yolo import SHARE_TOLERANCE

KEYS = ("a.png", "sub/b.png")


def prepare(folder: Path, boxes: Path) -> Any:
    for key in KEYS:
        path = folder / "photos" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 20)).save(path)
    chosen = ImageOptions(sizes=((8, 8),), fit="stretch", boxes=boxes)
    return images_to_shards(folder / "photos", folder / "out", chosen, RunOptions(workers=1))


def coco(**changes: Any) -> dict[str, Any]:
    images = [
        {"id": number, "file_name": key, "width": 40, "height": 20}
        for number, key in enumerate(KEYS)
    ]
    annotations = [{"image_id": 0, "category_id": 1, "bbox": [4, 2, 8, 9]}]
    categories = [{"id": 1, "name": "one"}]
    whole = {"images": images, "annotations": annotations, "categories": categories}
    return {**whole, **changes}


def write_coco(folder: Path, document: Any) -> Path:
    path = folder / "boxes.json"
    path.write_text(json.dumps(document))
    return path


def write_yolo(folder: Path, text: str) -> Path:
    labels = folder / "labels"
    labels.mkdir(exist_ok=True)
    (labels / "a.txt").write_text(text)
    return labels


@pytest.mark.parametrize(
    "line", ["0 0.5 0.5 1.0000001 1", "0 0.5 -0.0000003 1 0.5", "0 1.000009 0.5 0.5 -0.000009"]
)
def test_shares_that_rounding_has_moved_past_the_border_are_cut_at_it(
    tmp_path: Path, line: str
) -> None:
    (row,) = read_boxes(write_yolo(tmp_path, line)).of["a"].rows
    x, y, width, height = (min(1.0, max(0.0, float(part))) for part in line.split()[1:])
    assert row == (0, x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    prepare(tmp_path, tmp_path / "labels")


@given(
    st.lists(st.floats(-SHARE_TOLERANCE, 1 + SHARE_TOLERANCE), min_size=4, max_size=4),
    st.integers(0, 3),
    st.floats(SHARE_TOLERANCE * 1.01, 10),
)
def test_what_is_further_out_than_rounding_is_refused(
    tmp_path_factory: pytest.TempPathFactory, shares: list[float], place: int, beyond: float
) -> None:
    folder = tmp_path_factory.getbasetemp()
    read_boxes(write_yolo(folder, f"0 {' '.join(map(repr, shares))}"))
    for bad in (-beyond, 1 + beyond):
        shares[place] = bad
        labels = write_yolo(folder, f"0 {' '.join(map(repr, shares))}")
        with pytest.raises(SourceError, match=r"a\.txt: line 1: .*shares outside 0 to 1"):
            read_boxes(labels)


def test_boxes_of_no_area_are_counted(tmp_path: Path) -> None:
    flat = [{"image_id": 0, "category_id": 1, "bbox": box} for box in ([1, 1, 0, 5], [2, 2, 3, 0])]
    whole = coco(annotations=[*flat, *coco()["annotations"]])
    report = prepare(tmp_path, write_coco(tmp_path, whole))
    assert "2 boxes of no area are left out" in report.notes
    assert len(open_dataset(tmp_path / "out")[0]["boxes"]) == 1
    lines = "0 0.5 0.5 0 0.5\n0 0.5 0.5 0.5 0.5\n"
    found = read_boxes(write_yolo(tmp_path, lines))
    assert found.notes == ("1 box of no area is left out",)
    assert not read_boxes(write_yolo(tmp_path, "0 0.5 0.5 0.5 0.5\n")).notes


@pytest.mark.parametrize("part", ["images", "annotations", "categories"])
@pytest.mark.parametrize("value", [None, "text", {"a": 1}, 3, [1], [None]])
def test_a_part_of_a_coco_json_that_is_missing_or_of_another_kind_is_named(
    tmp_path: Path, part: str, value: Any
) -> None:
    document = coco(**{part: value})
    path = write_coco(tmp_path, document)
    with pytest.raises(SourceError) as told:
        read_boxes(path)
    place = f"{part}[0]" if isinstance(value, list) else part
    wanted = "an object" if isinstance(value, list) else "a list"
    assert str(told.value).startswith(f"{path}: {place}: expected {wanted}, as COCO has, ")
    del document[part]
    with pytest.raises(SourceError, match=rf"boxes\.json: {part}: expected a list, .* is missing"):
        read_boxes(write_coco(tmp_path, document))


@pytest.mark.parametrize("document", [[], 3, "text", None])
def test_a_json_of_something_else_is_named(tmp_path: Path, document: Any) -> None:
    with pytest.raises(
        SourceError, match=r"boxes\.json: expected an object, as COCO has, and found"
    ):
        read_boxes(write_coco(tmp_path, document))


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("images", "id", None),
        ("images", "id", [1]),
        ("images", "file_name", None),
        ("images", "file_name", 3),
        ("images", "width", None),
        ("images", "width", "wide"),
        ("images", "height", 0),
        ("images", "height", 1.5),
        ("images", "height", True),
        ("categories", "id", {}),
        ("categories", "name", None),
        ("annotations", "image_id", []),
        ("annotations", "category_id", None),
        ("annotations", "bbox", "1234"),
    ],
)
def test_a_value_of_a_coco_json_that_is_missing_or_of_another_kind_is_named(
    tmp_path: Path, part: str, key: str, value: Any
) -> None:
    document = coco()
    document[part][0][key] = value
    place = re.escape(f"boxes.json: {part}[0]")
    with pytest.raises(SourceError, match=f"{place}.*{key}"):
        read_boxes(write_coco(tmp_path, document))
    del document[part][0][key]
    with pytest.raises(SourceError, match=f"{place}.*{key}"):
        read_boxes(write_coco(tmp_path, document))


def test_ids_of_categories_are_of_one_kind(tmp_path: Path) -> None:
    document = coco(categories=[{"id": 1, "name": "one"}, {"id": "x", "name": "other"}])
    with pytest.raises(SourceError, match="categories: some of the ids are integers, and some"):
        read_boxes(write_coco(tmp_path, document))


@pytest.mark.parametrize("name", ["./sub/b.png", "sub//b.png", "sub/./b.png", ".//sub/.//b.png"])
def test_another_spelling_of_a_path_finds_its_photo(tmp_path: Path, name: str) -> None:
    document = coco()
    document["images"][1]["file_name"] = name
    report = prepare(tmp_path, write_coco(tmp_path, document))
    assert not report.skipped


@pytest.mark.parametrize("name", ["../photos/sub/b.png", "x/../sub/b.png", "/sub/b.png"])
def test_no_path_leads_out_of_the_source(tmp_path: Path, name: str) -> None:
    document = coco()
    document["images"][1]["file_name"] = name
    report = prepare(tmp_path, write_coco(tmp_path, document))
    assert dict(report.skipped) == {"sub/b.png": "boxes.json does not list it"}
    assert "boxes of 1 photos that are not there" in report.notes


def test_two_spellings_of_one_path_are_two_entries_of_one_photo(tmp_path: Path) -> None:
    document = coco()
    document["images"][1]["file_name"] = "./a.png"
    with pytest.raises(SourceError, match=r"two images with the file_name \./a\.png"):
        read_boxes(write_coco(tmp_path, document))
