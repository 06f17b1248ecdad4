"""Runs whose items become any number of samples of any length."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders.format.containers import CONTAINERS
from loaders.format.fields import FieldSpec
from loaders.format.files import checksum
from loaders.format.row_writer import RowWriter
from loaders.format.spec import (
    Container,
    read_manifest,
)
from preprocess import shard_writer
from preprocess.check import check_dataset
from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item, Listing
from preprocess.plan import RunOptions, plan_run
from preprocess.recipe import Maker, Ragged, Recipe, Redo, Rows
from preprocess.report import Report
from preprocess.run import run
from tests.recipes import read_tree, write_items


@dataclass(frozen=True, kw_only=True)
class LineRecipe:
    """Makes a sample of each line: its bytes, and how many they are.

    A line "bad" is skipped by name; "fail" refuses the item whole, whatever came before it.

    Attributes:
        more: Yield line by line, so that an item comes in many parts.
        wrong: Find at "check" that what was made is wrong.
    """

    more: bool = True
    wrong: bool = False

    kind = "tokens"
    one_to_one = False

    def options(self) -> dict[str, Any]:
        return {}

    def facts(self) -> dict[str, Any]:
        return {"fact": 1}

    def backend(self, listing: Listing, workers: int) -> str:
        return "threading"

    def expected_nbytes(self, item: Item) -> int:
        return item.nbytes

    def predicted_nbytes(self, item: Item) -> float:
        """Return the same: all samples are its own."""
        return self.expected_nbytes(item)

    def too_large(self, item: Item) -> SampleError | None:
        return None

    def refusal(self, tallies: Mapping[str, tuple[int, ...]]) -> str | None:
        return None

    def notes(self, tallies: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
        return ()

    def opened(self) -> AbstractContextManager[Maker]:
        return nullcontext(self)

    def fields(self) -> tuple[FieldSpec, ...]:
        return (
            FieldSpec(name="tokens", dtype="uint16", shape=(), role="tokens", ragged=True),
            FieldSpec(name="length", dtype="uint32", shape=(), role="length"),
        )

    def samples(self, files: ItemFiles, items: Sequence[Item]) -> Iterator[Rows | SampleError]:
        for item in items:
            lines = files.read(item).split(b"\n")
            for index, line in enumerate(lines):
                if line == b"fail":
                    yield SampleError(item.key, "it fails")
                    break
                if line == b"check" and self.wrong:
                    raise Redo(replace(self, wrong=False))
                more = index < len(lines) - 1
                yield one_line(item, index, line, wrong=self.wrong, more=more)


@dataclass(frozen=True, kw_only=True)
class FaultyRecipe(LineRecipe):
    """Fails at "check"."""

    def samples(self, files: ItemFiles, items: Sequence[Item]) -> Iterator[Rows | SampleError]:
        for rows in super().samples(files, items):
            if isinstance(rows, Rows) and rows.tallies["lines"] == (1, len(b"check")):
                raise OSError(5, "the recipe failed")
            yield rows


def one_line(item: Item, index: int, line: bytes, *, wrong: bool, more: bool) -> Rows:
    bad = line == b"bad"
    found = np.frombuffer(b"" if bad else line, np.uint8).astype("<u2") + (1 if wrong else 0)
    counts = np.array([] if bad else [len(line)], np.int64)
    return Rows(
        count=len(counts),
        arrays={
            "tokens": Ragged(found.astype("<u2"), counts),
            "length": counts.astype("<u4"),
        },
        skipped=(SampleError(f"{item.key}:{index}", "bad"),) if bad else (),
        tallies={"lines": (1, len(line))},
        more=more,
    )


def prepare(source: Path, out: Path, recipe: Recipe | None = None, **options: Any) -> Report:
    paths = sorted(path for path in source.iterdir() if path.is_file())
    items = tuple(Item(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in paths)
    listing = Listing(root=source, splits={"train": items})
    chosen = RunOptions(**{"shard_nbytes": 40, "workers": 2, **options})
    return run(plan_run(listing, out, {"train": recipe or LineRecipe()}, chosen), chosen)


def documents_of(out: Path) -> list[bytes]:
    """Read the documents of a tensor dataset with NumPy alone."""
    found = []
    for path in sorted((out / "train").glob("*.tokens.npy")):
        values = np.load(path)
        ends = np.load(str(path).replace("tokens", "tokens_offsets"))
        assert (ends.dtype, ends[0], ends[-1]) == (np.dtype("<u8"), 0, len(values))
        found += [values[a:b].astype(np.uint8).tobytes() for a, b in pairwise(ends)]
    return found


def expected_documents(contents: dict[str, bytes]) -> list[bytes]:
    lines = [data.split(b"\n") for _, data in sorted(contents.items())]
    return [line for part in lines if b"fail" not in part for line in part if line != b"bad"]


LINES = st.lists(st.sampled_from([b"", b"a", b"bad", b"word" * 9]), min_size=1, max_size=5)
ITEMS = st.lists(st.tuples(LINES, st.integers(0, 8)), min_size=1, max_size=6)


def contents_of(drawn: list[tuple[list[bytes], int]]) -> dict[str, bytes]:
    """Some items fail after their first lines."""
    found = {}
    for index, (lines, fails) in enumerate(drawn):
        kept = [*lines[:2], b"fail", *lines[2:]] if fails == 0 else lines
        found[f"{index:03d}"] = b"\n".join([b"x", *kept] if index == 0 and fails else kept)
    return found


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawn=ITEMS, part_nbytes=st.sampled_from([1, 30, 1 << 20]))
def test_every_line_of_good_items_is_there_once_in_order_and_none_of_items_that_fail(
    drawn: list[tuple[list[bytes], int]],
    part_nbytes: int,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path_factory.mktemp("ragged")
    contents = {**contents_of(drawn), "zzz": b"last"}
    write_items(folder / "source", contents)
    monkeypatch.setattr(shard_writer, "_PART_NBYTES", part_nbytes)

    report = prepare(folder / "source", folder / "out")

    expected = expected_documents(contents)
    assert documents_of(folder / "out") == expected
    split = read_manifest(folder / "out").splits["train"]
    good = [data for data in contents.values() if b"fail" not in data.split(b"\n")]
    assert (split.count, sum(split.values["tokens"])) == (len(expected), sum(map(len, expected)))
    assert split.tallies["lines"][0] == sum(len(data.split(b"\n")) for data in good)
    skips = sum(data.split(b"\n").count(b"bad") for data in good) + len(contents) - len(good)
    assert len(report.skipped) == skips
    assert not check_dataset(folder / "out", full=True).problems


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_the_result_does_not_depend_on_workers_or_backend(
    container: Container, tmp_path: Path
) -> None:
    write_items(
        tmp_path / "source", {f"{i:03d}": b"line %d\n" % i * (i % 7 + 1) for i in range(40)}
    )
    for name, options in {
        "one": {"workers": 1},
        "three": {"workers": 3},
        "loky": {"workers": 2, "backend": "loky"},
    }.items():
        prepare(tmp_path / "source", tmp_path / name, container=container, **options)
    whole = read_tree(tmp_path / "one")
    assert read_tree(tmp_path / "three") == whole
    assert read_tree(tmp_path / "loky") == whole


def test_zarr_reads_ragged_shards_alone(tmp_path: Path) -> None:
    import zarr

    write_items(tmp_path / "source", {"a": b"one\ntwo", "b": b"three" * 9, "c": b"", "d": b"\n"})
    prepare(tmp_path / "source", tmp_path / "out", container="zarr")

    group = zarr.open_group(tmp_path / "out", mode="r")["train"]

    documents = []
    for shard in sorted(group["tokens"].array_keys()):
        values, ends = group[f"tokens/{shard}"][:], group[f"tokens_offsets/{shard}"][:]
        lengths = group[f"length/{shard}"][:].tolist()
        found = [values[a:b].astype(np.uint8).tobytes() for a, b in pairwise(ends)]
        assert list(map(len, found)) == lengths
        documents += found
    assert documents == [b"one", b"two", b"three" * 9, b"", b"", b""]
    assert not check_dataset(tmp_path / "out", full=True).problems


def test_a_shard_whose_engine_was_wrong_is_made_again_with_another(tmp_path: Path) -> None:
    write_items(tmp_path / "source", {f"{i:03d}": b"line %d" % i for i in range(20)})
    (tmp_path / "source" / "012").write_bytes(b"one\ncheck\ntwo")
    prepare(tmp_path / "source", tmp_path / "plain")

    report = prepare(tmp_path / "source", tmp_path / "out", LineRecipe(wrong=True))

    assert report.redone == 1
    right = documents_of(tmp_path / "plain")
    made = documents_of(tmp_path / "out")
    assert len(made) == len(right)
    again = next(i for i, document in enumerate(right) if document == b"check")
    assert made[again - 1 : again + 2] == right[again - 1 : again + 2]
    assert made[0] != right[0]  # the other shards stay as the first engine made them


@pytest.mark.parametrize("first", [True, False])
def test_a_fault_in_one_shard_ends_the_others_in_the_middle_of_an_item(
    first: bool, tmp_path: Path
) -> None:
    lines = b"\n".join([b"word"] * 4_000)
    bad = b"one\n" * 50 + b"check"
    contents = {"a": bad, "b": lines, "c": lines} if first else {"a": lines, "b": lines, "c": bad}
    write_items(tmp_path / "source", contents)

    with pytest.raises(RuntimeError, match="the recipe failed"):
        prepare(tmp_path / "source", tmp_path / "out", FaultyRecipe(), shard_nbytes=1)

    assert not list((tmp_path / "out" / ".prep").glob("tmp-*"))


def test_files_beside_the_shards_belong_to_the_dataset(tmp_path: Path) -> None:
    write_items(tmp_path / "source", {"a": b"one"})
    item = Item("a", 3, 10**18)
    options = RunOptions(workers=1)
    listing = Listing(root=tmp_path / "source", splits={"train": (item,)})
    out = tmp_path / "out"
    plan = plan_run(listing, out, {"train": LineRecipe()}, options)
    plan = replace(plan, extras={"words/list.txt": b"some words"})

    run(plan, options)

    assert (out / "words" / "list.txt").read_bytes() == b"some words"
    report = check_dataset(out, full=True)
    assert (report.problems, report.foreign) == ((), ())
    (out / "words" / "list.txt").write_bytes(b"same words")
    assert "words/list.txt" in check_dataset(out, full=True).problems[0]
    assert json.loads((out / "manifest.json").read_bytes())["recipe"] == {"fact": 1}
    run(plan, replace(options, overwrite=True))
    assert not check_dataset(out, full=True).problems


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kept=st.lists(st.integers(1, 90_000), max_size=4),
    taken_back=st.lists(st.integers(1, 90_000), max_size=4),
    after=st.lists(st.integers(1, 90_000), max_size=4),
)
def test_a_file_that_goes_back_is_as_if_the_rows_had_never_come(
    kept: list[int], taken_back: list[int], after: list[int], tmp_path: Path
) -> None:
    def rows(sizes: list[int]) -> Iterator[np.ndarray]:
        for size in sizes:
            yield np.arange(size, dtype=np.uint8)

    expected = b"header" + b"".join(row.tobytes() for row in rows([*kept, *after]))
    writer = RowWriter(tmp_path / "file", b"header")
    for row in rows(kept):
        writer.append(row)
    mark = writer.mark()
    for row in rows(taken_back):
        writer.append(row)
    writer.go_back(mark)
    for row in rows(after):
        writer.append(row)
    writer.finish(b"header", b"")

    assert (tmp_path / "file").read_bytes() == expected
    assert writer.crc32c == checksum(tmp_path / "file")
    assert writer.count == sum(kept) + sum(after)


def test_containers_know_ragged_columns() -> None:
    with pytest.raises(ValueError, match="shape"):
        FieldSpec(name="tokens", dtype="uint32", shape=(2,), role="tokens", ragged=True)
    values, offsets = FieldSpec(
        name="tokens", dtype="uint32", shape=(), role="tokens", ragged=True
    ).columns()
    assert (values.name, offsets.name, offsets.dtype) == ("tokens", "tokens_offsets", "uint64")
    for container in CONTAINERS.values():
        assert container.suffix(values, 3, 8) == b""
