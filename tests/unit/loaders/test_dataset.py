import json
import multiprocessing
import os
import pickle  # noqa: TID251
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler, Subset, default_collate

from loaders import (
    FormatError,
    IncompleteError,
    MissingShardError,
    SelectionError,
    ShardDataset,
    VersionError,
    open_dataset,
)
from loaders.format.containers import CONTAINERS
from loaders.format.spec import FORMAT_VERSION, read_manifest
from tests.waiting import SECONDS


def stored_rows(ds: ShardDataset, name: str) -> np.ndarray:
    """Read all rows of a field with NumPy alone, shard after shard."""
    spec = ds.manifest.splits[ds.split]
    container = CONTAINERS[ds.manifest.container]
    field = next(field for field in spec.fields if field.name == name)
    parts = []
    for index, count in enumerate(spec.counts):
        raw = container.shard_path(ds.path, ds.split, index, field, spec.capacity).read_bytes()
        raw = raw[len(container.prefix(field, count)) :][: count * field.nbytes]
        parts.append(np.frombuffer(raw, field.numpy_dtype).reshape(count, *field.shape))
    return np.concatenate(parts)


def test_every_sample_is_the_stored_row(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    images, labels = stored_rows(ds, "image_32"), stored_rows(ds, "label")
    assert len(ds) == 18
    assert len(ds.manifest.splits["train"].counts) > 2
    for index in range(len(ds)):
        sample = ds[index]
        assert np.array_equal(sample["image"].permute(1, 2, 0).numpy(), images[index])
        assert sample["label"] == labels[index]
        assert type(sample["label"]) is int
        assert sample["key"].split("/")[1] == ds.classes[sample["label"]]
    assert ds[-1]["key"] == ds[17]["key"]


def test_a_batch_is_the_stack_of_its_samples(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size="24x16")
    indices = [17, 3, 3, 0, -1, 9]
    batch = ds.__getitems__(indices)
    expected = default_collate([ds[index] for index in indices])
    assert batch.keys() == expected.keys() == {"image", "label", "key"}
    assert torch.equal(batch["image"], expected["image"])
    assert torch.equal(batch["label"], expected["label"])
    assert batch["label"].dtype == torch.int64
    assert batch["key"] == expected["key"]


def test_images_are_channels_last_views_of_the_gathered_rows(dataset_path: Path) -> None:
    image = open_dataset(dataset_path, size=32).__getitems__([0, 1])["image"]
    assert image.shape == (2, 3, 32, 32)
    assert image.dtype == torch.uint8
    assert image.is_contiguous(memory_format=torch.channels_last)


def test_indices_may_be_lists_arrays_and_tensors(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    keys = ds.__getitems__([2, 5])["key"]
    assert ds.__getitems__(np.array([2, 5], np.uint8))["key"] == keys
    assert ds.__getitems__(torch.tensor([2, 5]))["key"] == keys
    assert ds.__getitems__(range(2, 8, 3))["key"] == keys
    assert ds[torch.tensor(2)]["key"] == ds[np.int64(2)]["key"] == keys[0]
    assert ds.__getitems__([])["image"].shape == (0, 3, 32, 32)
    assert ds.__getitems__([])["key"] == []


@pytest.mark.parametrize("indices", [[18], [-19], [0.5], [[1]], [0, 99]])
def test_indices_out_of_range_or_not_integers_are_refused(
    dataset_path: Path, indices: list[object]
) -> None:
    with pytest.raises(IndexError):
        open_dataset(dataset_path, size=32).__getitems__(indices)


def test_iterating_ends_at_the_last_sample(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    assert len(list(ds)) == 18
    with pytest.raises(IndexError, match="18 is out of range for 18"):
        ds[18]
    with pytest.raises(TypeError):
        ds[0.5]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_data_loader_needs_no_collate_function(dataset_path: Path, workers: int) -> None:
    ds = open_dataset(dataset_path, size=32)
    batches = list(DataLoader(ds, batch_size=5, shuffle=True, num_workers=workers))
    assert [len(batch["key"]) for batch in batches] == [5, 5, 5, 3]
    seen = sorted(key for batch in batches for key in batch["key"])
    assert seen == sorted(ds[index]["key"] for index in range(18))
    assert type(batches[0]) is dict
    assert batches[0]["image"].shape == (5, 3, 32, 32)


def test_subset_concat_and_distributed_sampler_work_in_a_data_loader(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    subset = Subset(ds, [4, 8, 1])
    (batch,) = DataLoader(subset, batch_size=3)
    assert batch["key"] == [ds[index]["key"] for index in (4, 8, 1)]
    (batch,) = DataLoader(ConcatDataset([subset, subset]), batch_size=6)
    assert batch["image"].shape == (6, 3, 32, 32)
    assert batch["label"].dtype == torch.int64
    shares = []
    for rank in range(2):
        sampler = DistributedSampler(ds, num_replicas=2, rank=rank, shuffle=False)
        batches = DataLoader(ds, batch_size=3, sampler=sampler)
        shares.append({key for batch in batches for key in batch["key"]})
    assert not shares[0] & shares[1]
    assert len(shares[0] | shares[1]) == 18


def test_changing_a_sample_or_batch_never_reaches_the_files(make_dataset) -> None:
    path = make_dataset(fresh=True)
    before = {file: file.read_bytes() for file in path.rglob("*.npy")}
    ds = open_dataset(path, size=32)
    ds[0]["image"].fill_(7)
    ds.__getitems__([0, 1])["image"].zero_()
    assert {file: file.read_bytes() for file in path.rglob("*.npy")} == before
    assert int(ds[0]["image"].max()) > 7


def _keys_of(ds: ShardDataset, queue: "multiprocessing.Queue[list[str]]") -> None:
    queue.put(ds.__getitems__([0, 7])["key"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_dataset_opened_and_read_travels_to_other_processes(
    dataset_path: Path, method: str
) -> None:
    ds = open_dataset(dataset_path, size=32)
    expected = ds.__getitems__([0, 7])["key"]
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_keys_of, args=(ds, queue))
    process.start()
    assert queue.get(timeout=SECONDS) == expected
    process.join()


def test_a_dataset_pickles_as_its_path_and_options(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, split="validation", size=(24, 16))
    ds.__getitems__(range(len(ds)))
    data = pickle.dumps(ds)
    assert len(data) < 500
    again = pickle.loads(data)
    assert torch.equal(again[3]["image"], ds[3]["image"])
    assert (again.split, again.path) == ("validation", dataset_path)


def test_a_dataset_that_was_replaced_does_not_unpickle(make_dataset) -> None:
    path = make_dataset(fresh=True)
    data = pickle.dumps(open_dataset(path, size=32))
    shutil.rmtree(path)
    shutil.copytree(make_dataset("tensor", 80_000), path)
    with pytest.raises(FormatError, match="replaced while it was open"):
        pickle.loads(data)


def test_statistics_are_those_of_the_train_split(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    images = stored_rows(ds, "image_32").astype(np.float64) / 255
    np.testing.assert_allclose(ds.mean, images.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(ds.std, images.std((0, 1, 2)), rtol=1e-9)
    validation = open_dataset(dataset_path, split="validation", size=32)
    assert (validation.mean, validation.std) == (ds.mean, ds.std)
    assert open_dataset(dataset_path, size="24x16").mean != ds.mean
    assert ds.classes == ("ant", "bee", "cat")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 64}, "no size 64; stored are 32, 24x16"),
        ({}, "no size was chosen; stored are 32, 24x16"),
        ({"size": "big"}, "expected 512"),
        ({"size": (1, 2, 3)}, "expected 512"),
        ({"split": "test", "size": 32}, "no split 'test'; stored are train, validation"),
    ],
)
def test_a_size_or_split_that_is_not_stored_is_refused_with_those_that_are(
    dataset_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(SelectionError, match=message):
        open_dataset(dataset_path, **options)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="not a dataset that prep wrote"):
        open_dataset(tmp_path)
    (tmp_path / ".prep").mkdir()
    with pytest.raises(IncompleteError, match="has not finished"):
        open_dataset(tmp_path)
    with pytest.raises(IncompleteError, match="no such folder"):
        open_dataset(tmp_path / "absent")


def test_missing_and_resized_shards_are_named_when_they_are_touched(make_dataset) -> None:
    path = make_dataset(fresh=True)
    ds = open_dataset(path, size=32)
    shards = sorted(path.glob("train/*.image_32.npy"))
    shards[0].unlink()
    with shards[1].open("r+b") as file:
        file.truncate(100)
    with shards[2].open("ab") as file:
        file.write(b"x")
    per_shard = ds.manifest.splits["train"].capacity
    with pytest.raises(MissingShardError, match=r"00000\.image_32\.npy: not found"):
        ds[0]
    with pytest.raises(FormatError, match=r"00001\.image_32\.npy: 100 bytes, manifest says"):
        ds[per_shard]
    with pytest.raises(FormatError, match=r"00002\.image_32\.npy: \d+ bytes, manifest says"):
        ds[2 * per_shard]


def test_a_manifest_whose_sizes_disagree_with_its_counts_is_refused(make_dataset) -> None:
    path = make_dataset(fresh=True)
    manifest = read_manifest(path)
    train = manifest.splits["train"]
    nbytes = list(train.files["image_32"].nbytes)
    nbytes[1] += 1
    changed = replace(train.files["image_32"], nbytes=tuple(nbytes))
    train = replace(train, files={**train.files, "image_32": changed})
    changed_manifest = replace(manifest, splits={**manifest.splits, "train": train})
    (path / "manifest.json").write_bytes(changed_manifest.to_bytes())
    with pytest.raises(FormatError, match="train shard 1 column image_32"):
        open_dataset(path, size=32)


def test_a_manifest_of_a_newer_format_is_refused_by_version(make_dataset) -> None:
    path = make_dataset(fresh=True)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["format_version"] = FORMAT_VERSION + 1
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(VersionError, match=f"format version {FORMAT_VERSION + 1}"):
        open_dataset(path, size=32)


def _read_with_few_descriptors(path: Path, queue: "multiprocessing.Queue[int]") -> None:
    open_files = len(os.listdir("/proc/self/fd"))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 4, hard))
    ds = open_dataset(path, size=32)
    queue.put(len(ds.__getitems__(range(len(ds)))["key"]))


def test_more_shards_than_file_descriptors_can_be_mapped(make_dataset) -> None:
    path = make_dataset("tensor", 4_000)
    assert len(open_dataset(path, size=32).manifest.splits["train"].counts) == 18
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_read_with_few_descriptors, args=(path, queue))
    process.start()
    assert queue.get(timeout=SECONDS) == 18
    process.join()
