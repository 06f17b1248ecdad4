"""A table beside the photos, and splits of photos that have none."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image  # noqa: TID253

from loaders import open_dataset
from preprocess import (
    ImageOptions,
    MetadataOptions,
    RunOptions,
    SourceError,
    SplitOptions,
    images_to_shards,
)
from preprocess.images.splits import split_photos
from preprocess.items import Item, Listing
from tests.token_commands import call

ROWS = [
    {"file_name": f"{i}.png", "kind": "ant" if i % 3 else "bee", "tags": ["x", "y"][: i % 3],
     "weight": i / 4, "who": f"p{i // 4}", "part": ["train", "val", "test"][i % 3]}
    for i in range(12)
]  # fmt: skip


def write_photos(folder: Path, count: int = 12) -> Path:
    photos = folder / "photos"
    photos.mkdir(exist_ok=True)
    for number in range(count):
        Image.new("RGB", (9 + number, 8), (number, 100, 0)).save(photos / f"{number}.png")
    return photos


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            for row in rows:
                tags = row.get("tags")
                writer.writerow({**row, "tags": "|".join(tags)} if isinstance(tags, list) else row)
    return path


def prepare(folder: Path, metadata: MetadataOptions | None, **options: Any) -> Any:
    chosen = ImageOptions(sizes=((8, 8),), metadata=metadata, **options)
    run = RunOptions(workers=1, overwrite=True)
    return images_to_shards(folder / "photos", folder / "out", chosen, run)


def test_another_spelling_of_a_path_finds_its_photo_and_none_leads_out(tmp_path: Path) -> None:
    write_photos(tmp_path, 4)
    names = ["./0.png", ".//1.png", "../photos/2.png", "x/../3.png"]
    rows = [{"file_name": name, "kind": "ant"} for name in names]
    report = prepare(
        tmp_path, MetadataOptions(path=write_table(tmp_path / "t.csv", rows), label="kind")
    )
    assert [key for key, _ in report.skipped] == ["2.png", "3.png"]
    path = write_table(tmp_path / "twice.csv", [*rows, {"file_name": "0.png", "kind": "ant"}])
    with pytest.raises(SourceError, match=r"line 6: 0\.png again, as in .*line 2"):
        prepare(tmp_path, MetadataOptions(path=path, label="kind"))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_labels_and_numbers_come_out_of_a_table(tmp_path: Path, ending: str) -> None:
    write_photos(tmp_path, 13)
    path = write_table(tmp_path / f"table.{ending}", ROWS)
    options = MetadataOptions(path=path, label="kind", labels="tags", targets=("weight",))
    report = prepare(tmp_path, options)
    assert dict(report.skipped) == {"12.png": f"{path.name} does not list it"}
    ds = open_dataset(tmp_path / "out")
    assert ds.classes == ("ant", "bee")
    assert ds.manifest.recipe["label_classes"] == ["x", "y"]
    assert ds.manifest.recipe["targets"] == ["weight"]
    for index in range(len(ds)):
        sample = ds[index]
        row = next(row for row in ROWS if row["file_name"] == sample["key"])
        assert ds.classes[sample["label"]] == row["kind"]
        assert sample["targets"].tolist() == [row["weight"]]
        assert sample["labels"].tolist() == [name in row["tags"] for name in ("x", "y")]
    assert ds.__getitems__([0, 1])["targets"].shape == (2, 1)


def test_a_table_that_nothing_is_taken_from_is_told_of(tmp_path: Path) -> None:
    folder = write_photos(tmp_path)
    path = write_table(tmp_path / "rows.csv", ROWS)

    def notes(out: str, *words: str) -> str:
        done = call("images", folder, tmp_path / out, "--sizes", "8", "--metadata", path, *words)
        assert done.exit_code == 0, done.stderr
        return str(done.stdout)

    said = "note: " + str(path) + ": none of its columns is asked for: --label"
    assert said in notes("plain")
    assert said in notes("dry", "--dry-run")
    assert said not in notes("label", "--label", "kind")
    assert said not in notes("group", "--group-by", "who", "--validation", "0.5")


def test_a_column_names_the_splits(tmp_path: Path) -> None:
    write_photos(tmp_path)
    path = write_table(tmp_path / "t.csv", ROWS)
    splits = SplitOptions(column="part")
    report = prepare(tmp_path, MetadataOptions(path=path), splits=splits)
    assert report.samples == {"train": 4, "validation": 4, "test": 4}
    assert open_dataset(tmp_path / "out", split="validation")[0]["key"] == "1.png"
    path = write_table(tmp_path / "t.csv", [*ROWS[:-1], {**ROWS[-1], "part": "dev"}])
    with pytest.raises(SourceError, match="line 13: part is 'dev'"):
        prepare(tmp_path, MetadataOptions(path=path), splits=splits)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"name": "0.png"}], "no column 'file_name'; perhaps 'name' is meant; there are 'name'"),
        ([ROWS[0], ROWS[0]], r"line 3: 0.png again, as in .*line 2"),
        ([{**ROWS[0], "weight": "heavy"}], "line 2: weight is 'heavy', expected a number"),
        ([{**ROWS[0], "weight": "1e39"}], "weight is '1e39'"),
        ([{**ROWS[0], "weight": "nan"}], "weight is 'nan'"),
        ([{**ROWS[0], "weight": "1_0"}], "weight is '1_0'"),
        ([{**ROWS[0], "file_name": "else.png"}], "lists none of the photos"),
    ],
)
def test_a_table_that_cannot_be_names_row_and_column(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    write_photos(tmp_path, 1)
    path = write_table(tmp_path / "t.csv", rows)
    with pytest.raises(SourceError, match=message):
        prepare(tmp_path, MetadataOptions(path=path, targets=("weight",)))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"file_name,a\n0.png\n", "line 2: another number of fields"),
        ("t.csv", b"file_name,a\n0.png,1,2\n", "line 2: another number of fields"),
        ("t.csv", b"file_name\n0.png\n\xff\n", "line 3: no UTF-8"),
        ("t.csv", b'file_name\n0.png\n"\n', "line 3: unexpected end of data"),
        ("t.csv", b"file_name\n" + b"x" * 200_000 + b"\n", "line 2: field larger than"),
        ("t.csv", b"file_name,a,a\n0.png,1,2\n", "line 1: 'a' names two columns"),
        ("t.jsonl", b"[1]\n", "line 1: no JSON object"),
        ("t.jsonl", b'{"file_name": "0.png"}\n{\n', "line 2, column 2: Expecting property name"),
        (
            "t.jsonl",
            b'{"file_name": "\\u0030.png", "a": "\\ud800"}\n',
            "line 1: half of a surrogate",
        ),
        ("t.jsonl", b"\n" + b"[" * 99_999 + b"\n", "line 2: maximum recursion"),
        ("t.jsonl", b'{"file_name": "0.png", "a": 1, "a": 2}\n', "line 1: 'a' names two columns"),
        ("t.parquet", b"PAR1", "cannot be read"),
        ("t.xls", b"", r"expected a \.csv"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    write_photos(tmp_path, 1)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=message):
        prepare(tmp_path, MetadataOptions(path=tmp_path / name))


def test_a_parquet_has_the_columns_that_are_in_it(tmp_path: Path) -> None:
    write_photos(tmp_path, 1)
    folder = tmp_path / "weight=3"
    folder.mkdir()
    path = write_table(folder / "t.parquet", [{"file_name": "0.png", "kind": "a"}])
    with pytest.raises(SourceError, match="no column 'weight'; there are 'file_name', 'kind'"):
        prepare(tmp_path, MetadataOptions(path=path, targets=("weight",)))
    twice = pa.Table.from_arrays([pa.array(["0.png"])] * 2, names=["file_name", "file_name"])
    pq.write_table(twice, path)
    with pytest.raises(SourceError, match="'file_name' names two columns"):
        prepare(tmp_path, MetadataOptions(path=path))


def test_json_lines_may_begin_with_a_mark_of_their_order(tmp_path: Path) -> None:
    write_photos(tmp_path, 1)
    (tmp_path / "t.jsonl").write_bytes(b'\xef\xbb\xbf{"file_name": "0.png", "kind": "a"}\n')
    prepare(tmp_path, MetadataOptions(path=tmp_path / "t.jsonl", label="kind"))


def listing_of(keys: list[str], labels: list[int] | None = None) -> Listing:
    items = tuple(
        Item(key, 1, 1, label=None if labels is None else labels[place])
        for place, key in enumerate(keys)
    )
    return Listing(root=Path("root"), splits={"train": items})


def members(listing: Listing) -> dict[str, set[str]]:
    return {name: {item.key for item in items} for name, items in listing.splits.items()}


@given(st.integers(0, 1000))
def test_photos_that_are_added_move_no_other(seed: int) -> None:
    keys = [f"{number}.jpg" for number in range(300)]
    options = SplitOptions(validation=0.2, test=0.1, seed=seed)
    before = members(split_photos(listing_of(keys[::2]), options, {}))
    after = members(split_photos(listing_of(keys), options, {}))
    for name, found in before.items():
        assert found == after[name] & set(keys[::2])
    assert set().union(*after.values()) == set(keys)
    assert 20 < len(after["validation"]) < 110


def test_stratified_splits_give_every_class_its_share() -> None:
    keys = [f"{number}.jpg" for number in range(130)]
    labels = [0] * 100 + [1] * 20 + [2] * 10
    options = SplitOptions(validation=0.1, test=0.2, stratify=True)
    found = split_photos(listing_of(keys, labels), options, {})
    counts = {
        name: np.bincount([item.label for item in items if item.label is not None]).tolist()
        for name, items in found.splits.items()
    }
    assert counts == {"train": [70, 14, 7], "validation": [10, 2, 1], "test": [20, 4, 2]}


def test_no_group_lies_in_two_splits(tmp_path: Path) -> None:
    write_photos(tmp_path)
    path = write_table(tmp_path / "t.csv", ROWS)
    for seed in range(30):
        splits = SplitOptions(validation=0.4, group_by="who", seed=seed)
        try:
            prepare(tmp_path, MetadataOptions(path=path), splits=splits)
        except SourceError as error:
            assert "gets no photo" in str(error)  # noqa: PT017
            continue
        found = {}
        for split in ("train", "validation"):
            ds = open_dataset(tmp_path / "out", split=split)
            found[split] = {int(ds[i]["key"].split(".")[0]) // 4 for i in range(len(ds))}
        assert not found["train"] & found["validation"]
        return
    pytest.fail("no seed gave two splits")


def test_copies_in_several_splits_are_refused_unless_allowed(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        (tmp_path / "photos" / split).mkdir(parents=True)
    image = Image.new("RGB", (20, 20), (9, 8, 7))
    for name in ("train/a.png", "train/b.png", "validation/c.png"):
        image.save(tmp_path / "photos" / name)
    Image.new("RGB", (20, 20), (9, 8, 6)).save(tmp_path / "photos/train/d.png")
    message = r"2 photos are exact copies of others in another split: train/a.png \(train\) = "
    with pytest.raises(SourceError, match=message):
        prepare(tmp_path, None)
    report = prepare(tmp_path, None, splits=SplitOptions(allow_leaks=True))
    assert any("exact copies" in note for note in report.notes)
    (tmp_path / "photos/validation/c.png").unlink()
    image.resize((21, 21)).save(tmp_path / "photos/validation/c.png")
    report = prepare(tmp_path, None)
    (note,) = report.notes
    assert note.startswith("1 photo is an exact copy of another: train/a.png (train) = train/b.png")


def test_a_note_on_many_copies_names_few_of_them_and_one_of_each_split(tmp_path: Path) -> None:
    for number in range(40):
        path = tmp_path / "photos" / ("test" if number == 39 else "train") / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 8)).save(path)
    with pytest.raises(SourceError) as caught:
        prepare(tmp_path, None)
    assert "39 photos are exact copies of others in another split: train/00.png" in str(
        caught.value
    )
    assert "test/39.png (test) and 36 others" in str(caught.value)
    assert "train/05.png" not in str(caught.value)


def test_folders_that_are_splits_are_not_divided_again(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "validation")):
        (tmp_path / "photos" / split).mkdir(parents=True)
        Image.new("RGB", (9 + number, 9)).save(tmp_path / "photos" / split / "a.png")
    with pytest.raises(SourceError, match="splits already"):
        prepare(tmp_path, None, splits=SplitOptions(test=0.5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": {"stratify": True}}, "only with shares"),
        ({"splits": {"validation": 0.5, "stratify": True, "group_by": "a"}}, "exclude each other"),
        ({"splits": {"validation": 0.5, "column": "a"}}, "give one of them"),
        ({"splits": {"validation": 1.5}}, "validation, test"),
        ({"splits": {"column": "a"}}, "only with metadata"),
        ({"labels": "none", "metadata": {"path": Path("a"), "label": "b"}}, "give one of them"),
    ],
)
def test_options_that_exclude_each_other_are_refused(options: Any, message: str) -> None:
    made = dict(options)
    with pytest.raises(ValueError, match=message):
        ImageOptions(
            sizes=((8, 8),),
            labels=made.get("labels", "auto"),
            metadata=MetadataOptions(**made["metadata"]) if "metadata" in made else None,
            splits=SplitOptions(**made.get("splits", {})),
        )


def test_a_note_on_many_groups_of_copies_says_how_many_it_does_not_name(tmp_path: Path) -> None:
    for number in range(5):
        for name in "ab":
            path = tmp_path / "photos" / f"{number}{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (9, 8), (number, 0, 0)).save(path)
    (note,) = prepare(tmp_path, None).notes
    assert note.startswith("5 photos are exact copies of others: 0a.png")
    assert note.endswith("; and 2 more")
