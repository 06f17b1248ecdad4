import multiprocessing
import pickle  # noqa: TID251
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

from loaders import (
    FormatError,
    IncompleteError,
    Loader,
    MissingShardError,
    SelectionError,
    TokenDataset,
    open_tokens,
)
from loaders.format.fields import FieldSpec
from tests.small_datasets import Made
from tests.token_stores import (
    stream_fields,
    text,
    write_chat,
    write_fixed,
    write_packed,
    write_store,
    write_stream,
)
from tests.waiting import SECONDS

SHARDS = [[[5, 6, 7], [], [8, 9]], [], [[]], [[10, 11, 12, 13], [14]]]
DOCUMENTS = [document for shard in SHARDS for document in shard]

WAYS: dict[str, Callable[[TokenDataset], Any]] = {
    "documents": lambda ds: ds.documents(),
    "blocks": lambda ds: ds.blocks(3),
    "blocks padded": lambda ds: ds.blocks(4, tail="pad"),
    "padded": lambda ds: ds.padded(4),
}


@pytest.fixture(params=["tensor", "zarr"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> TokenDataset:
    return open_tokens(write_stream(tmp_path / "stream", SHARDS, container=request.param))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


def test_a_dataset_knows_what_it_holds(stream: TokenDataset) -> None:
    assert len(stream) == len(DOCUMENTS) == 6
    assert stream.tokens == 10
    assert (stream.layout, stream.dtype, stream.split) == ("stream", np.uint16, "train")
    assert (stream.eos_id, stream.pad_id, stream.largest_id) == (2, 1, 999)
    assert "6 samples, 10 tokens, uint16 in layout stream" in repr(stream)


def test_facts_that_the_manifest_does_not_state_are_none(tmp_path: Path) -> None:
    ds = open_tokens(write_stream(tmp_path, SHARDS, tokenizer={"eos_id": None}))
    assert (ds.eos_id, ds.pad_id, ds.largest_id) == (None, None, None)
    broken = open_tokens(write_stream(tmp_path / "broken", SHARDS, tokenizer={"eos_id": "</s>"}))
    with pytest.raises(FormatError, match=r"recipe\.tokenizer\.eos_id is '</s>'"):
        _ = broken.eos_id


def test_every_document_is_the_stored_one_with_its_key(stream: TokenDataset) -> None:
    documents = stream.documents()
    assert len(documents) == 6
    for index, expected in enumerate(DOCUMENTS):
        sample = documents[index]
        assert sample["tokens"].dtype == torch.int64
        assert sample["tokens"].tolist() == expected
        assert sample["key"] == f"é.txt:{index}"
        assert sample["metadata"] == {"n": index}
    assert documents[-1]["key"] == "é.txt:5"
    assert len(list(documents)) == 6


def test_a_batch_of_documents_is_flat_with_the_bounds_of_each(stream: TokenDataset) -> None:
    batch = stream.documents().__getitems__([4, 1, 0, 0])
    assert batch["tokens"].tolist() == [10, 11, 12, 13, 5, 6, 7, 5, 6, 7]
    assert batch["lengths"].tolist() == [4, 0, 3, 3]
    assert batch["lengths"].dtype == torch.int64
    assert batch["cu_seqlens"].tolist() == [0, 4, 4, 7, 10]
    assert batch["cu_seqlens"].dtype == torch.int32
    assert batch["key"] == ["é.txt:4", "é.txt:1", "é.txt:0", "é.txt:0"]
    assert batch["metadata"] == [{"n": 4}, {"n": 1}, {"n": 0}, {"n": 0}]


def test_ids_above_uint16_keep_their_value(tmp_path: Path) -> None:
    ds = open_tokens(write_stream(tmp_path, [[[70_000, (1 << 32) - 1, 3]]], "uint32"))
    assert ds.dtype == np.uint32
    assert ds.documents()[0]["tokens"].tolist() == [70_000, (1 << 32) - 1, 3]
    assert ds.blocks(2)[0]["y"].tolist() == [(1 << 32) - 1, 3]


def test_keys_of_fixed_shape_lose_their_padding_and_metadata_may_be_absent(tmp_path: Path) -> None:
    fields = (
        stream_fields()[0],
        FieldSpec(name="key", dtype="uint8", shape=(6,), role="key"),
    )
    tokens = [np.array([3], np.uint16), np.array([4, 5], np.uint16)]
    shards = [{"tokens": tokens, "key": [text("a:1\0\0\0"), text("bcd:22")]}]
    documents = open_tokens(write_store(tmp_path, fields, shards)).documents()
    assert documents.__getitems__([1, 0])["key"] == ["bcd:22", "a:1"]
    assert documents[0].keys() == {"tokens", "key"}


@pytest.mark.parametrize("way", WAYS)
def test_an_empty_batch_has_the_entries_of_any_other(stream: TokenDataset, way: str) -> None:
    view = WAYS[way](stream)
    empty = view.__getitems__([])
    assert empty.keys() == view.__getitems__([0]).keys()
    assert all(len(value) == (name == "cu_seqlens") for name, value in empty.items())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("indices", [[99], [-99], [0.5], [[1]], [0, 99]])
def test_indices_out_of_range_or_not_integers_are_refused(
    stream: TokenDataset, way: str, indices: list[Any]
) -> None:
    view = WAYS[way](stream)
    with pytest.raises(IndexError):
        view.__getitems__(indices)
    with pytest.raises(IndexError, match=rf"{len(view)} is out of range for {len(view)} samples"):
        view[len(view)]
    with pytest.raises(TypeError):
        view[0.5]


@pytest.mark.parametrize("way", WAYS)
def test_indices_may_be_lists_arrays_tensors_and_negative(stream: TokenDataset, way: str) -> None:
    view = WAYS[way](stream)
    expected = view.__getitems__([1, 0])
    assert same(view.__getitems__(np.array([1, 0], np.uint8)), expected)
    assert same(view.__getitems__(torch.tensor([1, 0])), expected)
    assert same(view.__getitems__([1 - len(view), -len(view)]), expected)
    assert same(view[torch.tensor(1)], view[1 - len(view)])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_plain_data_loader_needs_no_collate_function(
    stream: TokenDataset, way: str, workers: int
) -> None:
    view = WAYS[way](stream)
    batches = list(DataLoader(view, batch_size=2, num_workers=workers))
    expected = [
        dict(view.__getitems__(range(start, min(start + 2, len(view)))))
        for start in range(0, len(view), 2)
    ]
    assert type(batches[0]) is dict
    assert all(same(one, other) for one, other in zip(batches, expected, strict=True))


def test_subset_and_concat_work_in_a_data_loader(stream: TokenDataset) -> None:
    blocks = stream.blocks(3)
    (batch,) = DataLoader(Subset(blocks, [2, 0]), batch_size=2)
    assert same(batch, dict(blocks.__getitems__([2, 0])))
    (batch,) = DataLoader(ConcatDataset([blocks, blocks]), batch_size=6)
    assert batch["x"].shape == (6, 3)
    (batch,) = DataLoader(Subset(stream.documents(), [2, 0]), batch_size=2)
    assert batch["tokens"].tolist() == [8, 9, 5, 6, 7]


@pytest.mark.parametrize("way", WAYS)
def test_a_loader_gives_the_same_batches_in_an_order_of_seed_and_epoch(
    stream: TokenDataset, way: str
) -> None:
    view = WAYS[way](stream)
    loader = Loader(view, 2, shuffle=False, drop_last=False)
    expected = [
        dict(view.__getitems__(range(start, min(start + 2, len(view)))))
        for start in range(0, len(view), 2)
    ]
    assert all(same(one, other) for one, other in zip(loader, expected, strict=True))
    shuffled = Loader(view, 1, seed=3)
    first = list(shuffled)
    second = list(shuffled)
    assert not all(same(one, other) for one, other in zip(first, second, strict=True))
    shuffled.set_epoch(0)
    assert all(same(one, other) for one, other in zip(shuffled, first, strict=True))


def test_a_loader_refuses_the_dataset_itself_and_names_a_view(stream: TokenDataset) -> None:
    with pytest.raises(SelectionError, match=r"TokenDataset.*such as \.blocks\(1024\)"):
        Loader(stream, 2)  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match="has 3 train samples, so no batch is full"):
        Loader(stream.blocks(3), 4)


@pytest.mark.parametrize(
    ("write", "view"),
    [
        (lambda path: write_stream(path, SHARDS), r"\.documents\(\)"),
        (lambda path: write_fixed(path, [[[1, 2], [3, 4]]], 3), r"\.padded\(\)"),
        (lambda path: write_packed(path, [[[[1, 2]]]], 3), r"\.packed\(\)"),
        (lambda path: write_chat(path, [[([1, 2], [0, 1])]]), r"\.chat\(\)"),
    ],
)
def test_the_dataset_itself_has_no_samples_and_names_the_view_that_has(
    tmp_path: Path, write: Callable[[Path], Any], view: str
) -> None:
    write(tmp_path / "out")
    data = open_tokens(tmp_path / "out")
    with pytest.raises(SelectionError, match=rf"out: \[0\] of a TokenDataset: .*{view}"):
        data[0]
    with pytest.raises(SelectionError, match=view):
        next(iter(data))
    with pytest.raises(SelectionError, match=view):
        DataLoader(data).__iter__().__next__()


@pytest.mark.parametrize("way", WAYS)
def test_changing_a_batch_never_reaches_the_files_or_other_batches(
    stream: TokenDataset, way: str
) -> None:
    view = WAYS[way](stream)
    before = {file: file.read_bytes() for file in stream.path.rglob("*") if file.is_file()}
    kept = view.__getitems__([0])
    for value in view.__getitems__([0]).values():
        if isinstance(value, torch.Tensor):
            value.zero_()
    assert same(view.__getitems__([0]), kept)
    assert {file: file.read_bytes() for file in before} == before


def _read(view: Any, queue: "multiprocessing.Queue[list[int]]") -> None:
    queue.put(view[0]["tokens"].tolist() + view[4]["tokens"].tolist())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_view_opened_and_read_travels_to_other_processes(tmp_path: Path, method: str) -> None:
    documents = open_tokens(write_stream(tmp_path, SHARDS)).documents()
    documents.__getitems__([0, 4])
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_read, args=(documents, queue))
    process.start()
    assert queue.get(timeout=SECONDS) == [5, 6, 7, 10, 11, 12, 13]
    process.join()


@pytest.mark.parametrize("way", WAYS)
def test_views_pickle_as_path_and_options(tmp_path: Path, way: str) -> None:
    document = list(range(40_000))
    view = WAYS[way](open_tokens(write_stream(tmp_path, [[document, [1, 2, 3]]])))
    view.__getitems__([0, 1])
    data = pickle.dumps(view)
    assert len(data) < 1000
    assert same(pickle.loads(data)[1], view[1])


def test_a_dataset_that_was_replaced_does_not_unpickle(tmp_path: Path) -> None:
    view = open_tokens(write_stream(tmp_path / "a", SHARDS)).documents()
    data = [pickle.dumps(view), pickle.dumps(open_tokens(tmp_path / "a"))]
    shutil.rmtree(tmp_path / "a")
    write_stream(tmp_path / "a", SHARDS[:1])
    for pickled in data:
        with pytest.raises(FormatError, match="replaced while it was open"):
            pickle.loads(pickled)


def test_folders_and_datasets_without_tokens_are_refused(
    tmp_path: Path, make_dataset: Callable[..., Path]
) -> None:
    with pytest.raises(SelectionError, match=r"kind 'images' holds no tokens.*open_dataset"):
        open_tokens(make_dataset())
    with pytest.raises(IncompleteError, match="not a dataset that prep wrote"):
        open_tokens(tmp_path)
    path = write_stream(tmp_path / "two", SHARDS, splits=("train", "validation"))
    assert len(open_tokens(str(path), "validation")) == 6
    with pytest.raises(SelectionError, match="no split 'test'; stored are train, validation"):
        open_tokens(path, split="test")


def test_a_table_without_texts_is_told_what_opens_it(made: Made) -> None:
    _, out = made("list table", "tensor")
    with pytest.raises(SelectionError, match=r"kind 'table' holds no tokens.*open_table"):
        open_tokens(out)


def test_a_view_that_does_not_suit_the_layout_names_those_that_do(tmp_path: Path) -> None:
    stored = {
        "stream": write_stream(tmp_path / "s", SHARDS),
        "fixed": write_fixed(tmp_path / "f", [[[3, 4]]], 4),
        "packed": write_packed(tmp_path / "p", [[[[3, 4]]]], 4),
        "chat": write_chat(tmp_path / "c", [[([3, 4], [0, 1])]]),
    }
    served = {
        "stream": {"blocks", "documents", "padded"},
        "fixed": {"padded"},
        "packed": {"packed"},
        "chat": {"chat", "documents"},
    }
    for layout, path in stored.items():
        ds = open_tokens(path)
        assert ds.layout == layout
        for name in ("blocks", "chat", "documents", "packed", "padded"):
            make = getattr(ds, name)
            arguments = (1,) if name == "blocks" else ()
            if name in served[layout]:
                assert len(make(*arguments)) > 0
                continue
            with pytest.raises(SelectionError, match=rf"\.{name}\(\) needs layout") as caught:
                make(*arguments)
            assert f"stored is {layout}: use ." in str(caught.value)
            assert "--layout" in str(caught.value)


def test_fields_of_no_layout_are_refused(tmp_path: Path) -> None:
    (field, key) = stream_fields()
    length = FieldSpec(name="length", dtype="uint16", shape=(), role="length")
    row = {"tokens": [np.array([3], np.uint16)], "key": [text("k")], "length": [np.uint16(1)]}
    with pytest.raises(FormatError, match="of no one layout"):
        open_tokens(write_store(tmp_path / "a", (field, key, length), [row]))
    with pytest.raises(FormatError, match="no field 'tokens', only"):
        open_tokens(write_store(tmp_path / "b", (key,), [row]))


@pytest.mark.parametrize(
    "offsets", [[1, 3, 3, 5], [0, 3, 2, 5], [0, 3, 3, 4], [0, 3, 3, 6], [0, 3, 1 << 63, 5]]
)
def test_offsets_that_leave_their_values_are_refused_with_the_file(
    tmp_path: Path, offsets: list[int]
) -> None:
    path = write_stream(tmp_path, SHARDS)
    file = path / "train" / "00000.tokens_offsets.npy"
    data = file.read_bytes()
    file.write_bytes(data[:-32] + np.array(offsets, "<u8").tobytes())
    documents = open_tokens(path).documents()
    with pytest.raises(FormatError, match=r"00000\.tokens_offsets\.npy: offsets from .*prep check"):
        documents[0]
    assert documents[4]["tokens"].tolist() == [10, 11, 12, 13]


def test_missing_and_resized_shards_are_named_when_they_are_touched(tmp_path: Path) -> None:
    path = write_stream(tmp_path, SHARDS)
    documents, blocks = open_tokens(path).documents(), open_tokens(path).blocks(2)
    (path / "train" / "00000.tokens.npy").unlink()
    with (path / "train" / "00003.tokens.npy").open("ab") as file:
        file.write(b"x")
    assert documents[3]["tokens"].tolist() == []
    with pytest.raises(MissingShardError, match=r"00000\.tokens\.npy: not found"):
        documents[0]
    with pytest.raises(FormatError, match=r"00003\.tokens\.npy: \d+ bytes, manifest says"):
        documents[4]
    with pytest.raises(MissingShardError, match=r"00000\.tokens\.npy: not found"):
        list(Loader(blocks, 1, shuffle=False))


def test_a_split_without_documents_has_length_zero(tmp_path: Path) -> None:
    ds = open_tokens(write_stream(tmp_path, [[], []]))
    assert (len(ds), ds.tokens, len(ds.documents()), len(ds.padded())) == (0, 0, 0, 0)
    with pytest.raises(SelectionError, match="needs 2 tokens, train has 0"):
        ds.blocks(1)
    with pytest.raises(SelectionError, match="train has 0"):
        ds.blocks(1, tail="pad")
