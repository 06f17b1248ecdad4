import sys
import threading
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loaders import Loader, MissingShardError, Mix, Weighted, open_dataset, open_table, open_tokens
from loaders.announce import Announcer, Stretched, announce_ahead, chunk_blocks, will_need
from loaders.format.maps import map_file
from loaders.order import Epoch
from loaders.stretches import Stretches, joined, split_by_shard
from tests.page_cache import drop, resident
from tests.table_stores import write_people
from tests.token_stores import write_chat, write_fixed, write_packed, write_stream
from tests.waiting import SECONDS

linux = pytest.mark.skipif(sys.platform != "linux", reason="announces on Linux alone")


def parts_of(dataset: Any, indices: Any) -> list[NDArray[Any]]:
    return [*chain.from_iterable(dataset.stretches(np.array(indices)))]


def spans(parts) -> list[tuple[int, int]]:
    return [(part.ctypes.data, part.ctypes.data + part.nbytes) for part in parts]


def test_stretches_join_neighbours_and_leave_out_wide_gaps() -> None:
    rows = np.zeros((100, 10_000), np.uint8)
    wanted = np.array([3, 4, 7, 50, 99])
    found = [
        (len(part), (part.ctypes.data - rows.ctypes.data) // 10_000)
        for part in Stretches(lambda: rows, 10_000, *joined(wanted, wanted + 1, 10_000))
    ]
    assert found == [(5, 3), (1, 50), (1, 99)]
    assert all(len(ends) == 0 for ends in joined(wanted[:0], wanted[:0], 10_000))
    by_shard = [(s, at.tolist()) for s, at in split_by_shard(wanted, np.array([4, 4, 51, 200]))]
    assert by_shard == [(0, [3]), (2, [0, 3, 46]), (3, [48])]
    assert list(split_by_shard(wanted[:0], np.array([4]))) == []


def test_every_kind_of_dataset_says_where_its_samples_lie(tmp_path: Path) -> None:
    """Whatever is stored of some samples lies in the stretches of these samples."""
    chats = [[([5, 6], [0, 1]), ([7, 8, 9], [1, 1, 0])], [([1], [1]), ([3, 4], [0, 1])]]
    documents = [[[5, 6], [7, 8, 9]], [[1], [3, 4, 9]]]
    stream = open_tokens(write_stream(tmp_path / "stream", documents))
    views = [
        stream.documents(),
        stream.padded(4),
        open_tokens(write_fixed(tmp_path / "fixed", documents, 4)).padded(),
        open_tokens(write_packed(tmp_path / "packed", [documents], 9)).packed(),
        open_tokens(write_chat(tmp_path / "chat", chats)).chat(5),
    ]
    for view in views:
        indices = np.arange(len(view))[:: 2 if len(view) > 1 else 1]
        announced = spans(parts_of(view, indices))
        columns = view.look.store.columns
        for name, field in view.look.store.fields.items():
            if field.ragged:
                pieces = columns.slices(name, indices)
            else:
                every = [row for rows in columns.rows(name).maps() for row in rows]
                pieces = [every[index] for index in indices]
            assert len(pieces) == len(indices)
            for begin, end in spans(piece for piece in pieces if piece.nbytes):
                assert any(first <= begin and end <= last for first, last in announced), view


def test_stored_rows_and_windows_are_what_is_announced(tmp_path: Path, dataset_path: Path) -> None:
    photos = open_dataset(dataset_path, size=32)
    found = b"".join(p.tobytes() for p in parts_of(photos, [0, 17]))
    for index in (0, 17):
        assert photos[index]["image"].permute(1, 2, 0).numpy().tobytes() in found
        assert photos[index]["key"].encode() in found
    people = open_table(write_people(tmp_path / "people"))
    (records,) = parts_of(people, range(3, 9))
    assert records.shape[0] == 6
    blocks = open_tokens(write_stream(tmp_path / "blocks", [[[*range(9)]], [[*range(9, 30)]]]))
    view = blocks.blocks(4, stride=3)
    parts = parts_of(view, [1, 2, 5])  # the third is a window of both shards
    assert [part.tolist() for part in parts] == [[*range(3, 9)], [*range(9, 20)]]
    mix = Mix({view: 1, blocks.blocks(4): 1})
    indices = np.sort(mix.order(np.arange(6), Epoch(shuffle=True)))
    assert parts_of(mix, np.unique(indices))
    assert len(parts_of(Weighted(view, np.ones(len(view))), [0])) == 1
    for dataset in (photos, people, view, mix, photos.select([1])):
        assert isinstance(dataset, Stretched)


@linux
def test_what_is_announced_is_read_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    size = 8 << 20
    path.write_bytes(bytes(size))
    drop(path)
    mapped = map_file(path, size)
    will_need(mapped[3_000_001 : 3_000_001 + (1 << 20)])
    deadline = threading.Event()
    for _ in range(20 * SECONDS):
        if resident(path, 3_000_001) and resident(path, 4_000_000):
            break
        deadline.wait(0.05)
    assert resident(path, 3_000_001)
    assert resident(path, 4_000_000)
    assert not resident(path, 7 << 20)


class Counted:
    """A dataset over one map that counts how often it was asked."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows
        self.asked: list[int] = []

    def stretches(self, indices: np.ndarray):
        self.asked.append(len(indices))
        row_nbytes = self.rows.shape[1]
        return [Stretches(lambda: self.rows, row_nbytes, *joined(indices, indices + 1, row_nbytes))]


@linux
def test_cold_samples_are_all_announced_and_warm_ones_hardly_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    rows, width = 4096, 8192
    path.write_bytes(np.arange(rows * width, dtype=np.uint8).tobytes())
    chunks = np.random.default_rng(0).permutation(rows).reshape(-1, 64)
    drop(path)
    cold = Counted(map_file(path, rows * width).reshape(rows, width))
    announcer = Announcer(cold)
    for chunk in chunks[:32]:
        told = announcer.announce(chunk)
        assert told is not None
        told.result()
    announcer.close()
    assert cold.asked.count(64) == 32
    path.read_bytes()
    warm = Counted(map_file(path, rows * width).reshape(rows, width))
    announcer = Announcer(warm)
    for _ in range(300):
        announcer._faults = 1 << 62  # those of other work in this process do not count
        assert announcer.announce(chunks[0]) is None
    announcer.close()
    assert max(warm.asked) <= 4
    assert len(warm.asked) < 30


class Watched:
    """A dataset that notes which samples were announced before they were gathered."""

    def __init__(self, dataset) -> None:
        self.dataset = dataset
        self.path, self.split, self.views = dataset.path, dataset.split, dataset.views
        self.made_nbytes = dataset.made_nbytes
        self.announced: set[int] = set()
        self.unannounced: list[int] = []

    def __len__(self) -> int:
        return len(self.dataset)

    def stretches(self, indices: np.ndarray):
        yield from self.dataset.stretches(indices)
        self.announced.update(indices.tolist())

    def gather_into(self, indices: np.ndarray, buffers) -> None:
        self.unannounced += set(indices.tolist()) - self.announced
        self.dataset.gather_into(indices, buffers)

    def show(self, rows, take):
        return self.dataset.show(rows, take)


@linux
@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"shuffle": "block", "window": 500}])
def test_from_a_cold_disk_a_loader_announces_every_sample_before_it_is_gathered(
    tmp_path: Path, options: dict
) -> None:
    folder = write_stream(tmp_path / "data", [[[*range(40_001)]], [[*range(30_000)]]])
    for file in (folder / "train").iterdir():
        drop(file)
    watched = Watched(open_tokens(folder).blocks(20))
    loader = Loader(watched, 10, **options)
    assert sum(len(batch["x"]) for batch in loader) == 3500
    assert watched.unannounced == []
    assert watched.announced == set(range(3500))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 100])
def test_blocks_come_in_order_and_no_further_ahead_than_two_chunks(count: int) -> None:
    drawn: list[int] = []

    def blocks():
        for number in range(count):
            drawn.append(number)
            yield number

    dataset = Counted(np.zeros((100, 8), np.uint8))
    found = []
    ahead = announce_ahead(dataset, blocks(), lambda b: np.array([b]), lambda _: 4)
    for block in ahead:
        found.append(block)
        assert len(drawn) <= len(found) + 7
    assert found == [*range(count)]
    assert list(announce_ahead(object(), iter(range(count)), np.array, int)) == [*range(count)]


def test_a_chunk_is_some_mebibytes_and_at_least_a_batch() -> None:
    assert chunk_blocks(64, 64 * 150_528) == 3
    assert chunk_blocks(64, 1 << 30) == 1
    assert chunk_blocks(4096, 4096 * 100) == 16
    assert chunk_blocks(1, 0) == 1 << 16


def test_threads_end_with_the_loop_and_errors_come_with_their_batch(
    tmp_path: Path, dataset_path: Path
) -> None:
    ids = [[[*range(n, n + 50)]] for n in range(0, 500, 50)]
    view = open_tokens(write_stream(tmp_path / "data", ids)).blocks(4)
    for file in (tmp_path / "data" / "train").glob("00005*"):
        file.unlink()
    loader = Loader(view, 4, shuffle=False)
    seen = -1

    def train() -> None:
        nonlocal seen
        for batch in loader:
            seen = int(batch["x"][-1, 0])

    with pytest.raises(MissingShardError):
        train()
    assert seen >= 100  # a few batches are gathered in one go
    for batch in Loader(open_dataset(dataset_path, size=32), 2):
        del batch
        break
    assert not [t for t in threading.enumerate() if t.name.startswith("prep-announce")]
