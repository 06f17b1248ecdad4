import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from loaders import Loader, SelectionError, ShardsError, open_dataset
from loaders.ahead import BufferPool
from preprocess import ImageOptions, images_to_shards
from tests.synthetic import write_image_tree


def keys(loader: Loader) -> list[str]:
    return [key for batch in loader for key in batch["key"]]


def test_an_epoch_visits_every_sample_once_in_full_batches(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    loader = Loader(ds, 4)
    batches = list(loader)
    assert len(batches) == len(loader) == 4
    assert all(batch["image"].shape == (4, 3, 32, 32) for batch in batches)
    assert len({key for batch in batches for key in batch["key"]}) == 16
    whole = Loader(ds, 4, drop_last=False)
    assert sorted(keys(whole)) == sorted(ds[index]["key"] for index in range(18))
    assert len(whole) == 5


def test_batches_hold_the_samples_of_their_keys(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    by_key = {ds[index]["key"]: ds[index] for index in range(len(ds))}
    for batch in Loader(ds, 5, drop_last=False):
        for image, label, key in zip(batch["image"], batch["label"], batch["key"], strict=True):
            assert torch.equal(image, by_key[key]["image"])
            assert label == by_key[key]["label"]


def test_each_pass_is_the_next_epoch_and_set_epoch_returns_to_one(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    loader = Loader(ds, 4, seed=5)
    first, second = keys(loader), keys(loader)
    assert first != second
    loader.set_epoch(0)
    assert keys(loader) == first
    assert keys(loader) == second
    assert keys(Loader(ds, 4, seed=5)) == first
    assert keys(Loader(ds, 4, seed=6)) != first


def test_without_shuffling_batches_are_as_stored(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    stored = [ds[index]["key"] for index in range(18)]
    assert keys(Loader(ds, 5, shuffle=False, drop_last=False)) == stored


def test_batches_do_not_share_memory(dataset_path: Path) -> None:
    batches = list(Loader(open_dataset(dataset_path, size=32), 2))
    copies = [batch["image"].clone() for batch in batches]
    batches[0]["image"].zero_()
    for batch, copy in zip(batches[1:], copies[1:], strict=True):
        assert torch.equal(batch["image"], copy)


def test_a_pooled_array_is_used_again_only_when_nothing_over_it_is_left() -> None:
    pool = BufferPool(2)
    shape, dtype = (4, 600_000), np.dtype(np.uint8)
    first = pool.take(shape, dtype)
    address = first.ctypes.data
    view = torch.from_numpy(first)[1:3].permute(1, 0)
    del first
    others = [pool.take(shape, dtype) for _ in range(3)]
    assert address not in {other.ctypes.data for other in others}
    assert len({other.ctypes.data for other in others}) == 3
    pool = BufferPool(2)
    first = pool.take(shape, dtype)
    address = first.ctypes.data
    view = torch.from_numpy(first)
    del first
    view.fill_(5)
    assert pool.take(shape, dtype).ctypes.data != address
    del view
    assert pool.take(shape, dtype).ctypes.data == address
    assert pool.take((4, 600_001), dtype).shape == (4, 600_001)


def test_large_batches_that_are_kept_are_never_overwritten(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["ant", "bee"], 8, size=(64, 48))
    options = ImageOptions(sizes=((640, 640),))
    images_to_shards(tmp_path / "photos", tmp_path / "out", options)
    ds = open_dataset(tmp_path / "out")
    kept = list(Loader(ds, 1, seed=2))
    for batch in kept:
        assert batch["image"].nbytes > 1 << 20
        (index,) = [i for i in range(16) if ds[i]["key"] == batch["key"][0]]
        assert torch.equal(batch["image"][0], ds[index]["image"])


def test_breaking_off_ends_the_gather_thread(dataset_path: Path) -> None:
    before = threading.active_count()
    for _ in Loader(open_dataset(dataset_path, size=32), 1):
        break
    assert threading.active_count() == before


def test_an_error_while_gathering_reaches_the_loop(make_dataset) -> None:
    path = make_dataset(fresh=True)
    ds = open_dataset(path, size=32)
    next(path.glob("train/*.image_32.npy")).unlink()
    with pytest.raises(ShardsError, match="not found"):
        keys(Loader(ds, 4))


def test_settings_that_give_no_batch_are_refused(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    with pytest.raises(SelectionError, match="18 train samples, so no batch is full"):
        Loader(ds, 19)
    with pytest.raises(SelectionError, match="batch_size=0"):
        Loader(ds, 0)
    assert len(keys(Loader(ds, 19, drop_last=False))) == 18


def test_an_absent_device_is_refused_when_the_loader_is_made(dataset_path: Path) -> None:
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(ShardsError, match=absent):
        Loader(open_dataset(dataset_path, size=32), 4, device=absent)
