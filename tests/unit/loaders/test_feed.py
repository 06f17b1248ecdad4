"""The way of batches to a device: slots that threads fill in pieces, of several batches at once."""

import gc
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders import Loader, Mix, ShardsError, feed, open_dataset, open_table, open_tokens
from loaders.feed import DeviceFeed
from loaders.finish import Finish
from preprocess import ImageOptions, images_to_shards
from tests.synthetic import write_image_tree
from tests.table_stores import write_people
from tests.token_stores import write_stream
from tests.waiting import SECONDS


@pytest.fixture(autouse=True)
def _no_threads_of_other_tests() -> None:
    """Let the threads of datasets that nobody has any more end: they would be taken for ours."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("prep-"):
            thread.join(20)


def through_ring(loader: Loader, threads: int = 4) -> Loader:
    """Let a loader go the way of batches for a GPU, without one."""
    found = DeviceFeed(loader.dataset, loader.device, Finish(None, None, 0), None, 1)
    found._threads = threads
    loader._feed = found
    return loader


@pytest.fixture(scope="module")
def datasets(
    make_dataset: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("feed")
    images = [open_dataset(make_dataset(container), size=32) for container in ("tensor", "zarr")]
    ids = list(range(101))
    stream = open_tokens(write_stream(folder / "a", [[ids[:30]], [ids[30:41], ids[41:]]]))
    write_image_tree(folder / "photos", ["ant", "bee"], 4, size=(30, 20))
    write_image_tree(folder / "photos", ["cat"], 4, size=(16, 24))
    options = ImageOptions(sizes=((16, 16),), fit="shortest")
    images_to_shards(folder / "photos", folder / "pictures", options)
    options = ImageOptions(sizes=((16, 16),), fit="bucket", bucket_step=4)
    images_to_shards(folder / "photos", folder / "buckets", options)
    return {
        "images": images[0],
        "pictures of all sizes": open_dataset(folder / "pictures", padded=True),
        "pictures in buckets": open_dataset(folder / "buckets"),
        "mixed images": Mix([(images[0], 0.7), (images[1], 0.3)]),
        "table": open_table(write_people(folder / "people", 50, shards=[20, 0, 1, 29])),
        "padded blocks": stream.blocks(8, stride=3, tail="pad"),
        "padded documents": stream.padded(16),
        "documents": stream.documents(),
    }


class Watched:
    """Calls a function before each gather of another dataset, with its indices and arrays."""

    def __init__(self, dataset: Any, before: Callable[[Any, Any], None]) -> None:
        self.dataset, self.before = dataset, before
        self.path, self.split, self.views = dataset.path, dataset.split, dataset.views
        self.made_nbytes, self.show = dataset.made_nbytes, dataset.show

    def __len__(self) -> int:
        return len(self.dataset)

    def gather_into(self, indices: Any, buffers: Mapping[str, Any]) -> None:
        self.before(indices, buffers)
        self.dataset.gather_into(indices, buffers)


@pytest.mark.parametrize(
    "kind",
    [
        "images",
        "pictures of all sizes",
        "pictures in buckets",
        "mixed images",
        "table",
        "padded blocks",
        "padded documents",
        "documents",
    ],
)
@pytest.mark.parametrize("last", ["drop", "pad", "wrap", None])
@given(
    piece=st.sampled_from([1, 50, 2000, 7000, 1 << 30]),
    small=st.sampled_from([0, 10, 100, 1 << 20]),
    threads=st.integers(1, 5),
    ahead=st.integers(0, 3),
    batch_size=st.integers(1, 7),
)
@settings(deadline=None, max_examples=8)
def test_however_batches_are_divided_they_are_those_of_the_host(
    datasets: dict[str, Any],
    kind: str,
    last: Any,
    piece: int,
    small: int,
    threads: int,
    ahead: int,
    batch_size: int,
) -> None:
    dataset = datasets[kind]
    options = {"drop_last": False} if last is None else {"last": last}
    batch_size = min(batch_size, len(dataset))
    expected = list(Loader(dataset, batch_size, seed=1, **options))
    loader = through_ring(Loader(dataset, batch_size, seed=1, **options), threads)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("THREADED_FROM", 0),
            ("_PIECE", piece),
            ("_SMALL", small),
            ("_SLOTS_AHEAD", ahead),
        ):
            patch.setattr(feed, name, value)
        found = list(loader)
    assert len(found) == len(expected)
    for batch, known in zip(found, expected, strict=True):
        assert batch.keys() == known.keys()
        assert ("valid" in batch) == (last == "pad")
        for name, value in known.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(batch[name].nan_to_num(-7), value.nan_to_num(-7))
            else:
                assert batch[name] == value


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches of a few images of 32 x 32 go piece by piece, one image each."""
    monkeypatch.setattr(feed, "THREADED_FROM", 0)
    monkeypatch.setattr(feed, "_PIECE", 32 * 32 * 3)
    monkeypatch.setattr(feed, "_SMALL", 1000)


@pytest.mark.usefixtures("small_pieces")
def test_images_are_gathered_in_pieces_and_what_is_small_once_a_batch(
    datasets: dict[str, Any],
) -> None:
    calls: list[tuple[int, tuple[str, ...]]] = []
    watched = Watched(datasets["images"], lambda i, b: calls.append((len(i), tuple(sorted(b)))))
    list(through_ring(Loader(watched, 6)))
    assert sorted(set(calls)) == [(1, ("image",)), (6, ("key", "label"))]
    assert calls.count((1, ("image",))) == 18
    assert calls.count((6, ("key", "label"))) == 3


@pytest.mark.usefixtures("small_pieces")
def test_the_next_batch_is_begun_while_a_piece_of_the_first_still_runs(
    datasets: dict[str, Any],
) -> None:
    order = [*range(18)]
    next_begun = threading.Event()
    waited: list[bool] = []

    def before(indices: Any, buffers: Mapping[str, Any]) -> None:
        if "image" not in buffers:
            return
        if order.index(int(indices[0])) == 0:
            waited.append(next_begun.wait(SECONDS))
        elif order.index(int(indices[0])) == 3:  # the last of the second batch
            next_begun.set()

    loader = Loader(Watched(datasets["images"], before), 2, shuffle=False)
    found = [key for batch in through_ring(loader, 2) for key in batch["key"]]
    assert waited == [True]
    assert found == [datasets["images"][index]["key"] for index in order]


@pytest.mark.usefixtures("small_pieces")
def test_an_error_in_a_piece_is_raised_when_no_other_piece_runs_any_more(
    datasets: dict[str, Any],
) -> None:
    running: set[int] = set()
    failed, release = threading.Event(), threading.Event()
    seen: list[bool] = []

    def before(indices: Any, buffers: Mapping[str, Any]) -> None:
        if "image" not in buffers:
            return
        number = int(indices[0])
        if number == 3:
            failed.set()
            raise ShardsError("piece 3")
        if number == 4:  # of the same batch, and slower than the one that fails
            running.add(number)
            seen.append(failed.wait(SECONDS) and release.wait(SECONDS))
            running.discard(number)

    batches = iter(through_ring(Loader(Watched(datasets["images"], before), 3, shuffle=False), 3))
    threading.Timer(0.05, release.set).start()
    with pytest.raises(ShardsError, match="piece 3"):
        list(batches)
    assert seen == [True]
    assert not running
    assert not [t for t in threading.enumerate() if t.name.startswith("prep-")]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("taken", [0, 1, 3])
def test_breaking_off_the_device_path_ends_its_threads(
    datasets: dict[str, Any], taken: int
) -> None:
    batches = iter(through_ring(Loader(datasets["images"], 2)))
    for _ in range(taken):
        next(batches)
    batches.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("prep-")]


def test_an_error_of_a_shard_that_is_gone_reaches_the_loop(
    make_dataset: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_dataset(fresh=True)
    next(path.glob("train/*.image_32.npy")).unlink()
    for threaded_from in (0, 1 << 30):
        monkeypatch.setattr(feed, "THREADED_FROM", threaded_from)
        with pytest.raises(ShardsError, match="missing"):
            list(through_ring(Loader(open_dataset(path, size=32), 4)))
        assert not [t for t in threading.enumerate() if t.name.startswith("prep-")]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_device_memory_does_not_grow_over_epochs(datasets: dict[str, Any]) -> None:
    loader = Loader(datasets["images"], 4, device="cuda")
    reserved = []
    for _ in range(20):
        list(loader)
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] - reserved[1] <= 1 << 23  # four of the allocator's small blocks
