"""Datasets whose pictures are encoded: read in every way that raw ones are, or refused by name."""

import gc
import json
import multiprocessing
import os
import pickle  # noqa: TID251 - what worker processes do
import shutil
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg  # noqa: TID253 - a test may load what it compares with
import torch
import zarr  # noqa: TID253
from google_crc32c import value as crc32c
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from loaders import (
    FormatError,
    Loader,
    Mix,
    SelectionError,
    Weighted,
    decode_threads,
    open_dataset,
)
from loaders.decode_threads import DecodeThreads
from loaders.format.codecs import encode_sample
from loaders.format.encoding import Encoding
from loaders.format.files import crc32c_digits, to_json
from loaders.format.spec import read_manifest
from loaders.residency import estimate_residency
from preprocess import ImageOptions, RunOptions, images_to_shards
from tests.synthetic import encode_image, smooth_image
from tests.waiting import SECONDS

COUNT = 11
BLOSC = Encoding(codec="blosc-lz4", level=5)
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "raw": ("tensor", {}),
    "jpeg": ("tensor", {"store": "jpeg"}),
    "jpeg in zarr": ("zarr", {"store": "jpeg"}),
    "grey jpeg": ("tensor", {"store": "jpeg", "grayscale": True, "quality": 70}),
    "zstd": ("zarr", {"compress": "zstd"}),
    "blosc": ("zarr", {"compress": "blosc-lz4"}),
}
ENCODED = [name for name in WAYS if name != "raw"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(COUNT):
        pixels = smooth_image(50 + number, 40, seed=number)
        path = folder / f"{'ab'[number % 2]}/{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode_image(pixels, ".png"))
    return folder


@pytest.fixture(scope="module")
def prepare(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return what prepares the photos in one of the ways, once unless `fresh`."""
    made: dict[str, Path] = {}

    def prepare(name: str, fresh: bool = False, **more: Any) -> Path:
        container, options = WAYS[name]
        key = f"{name} {more}"
        if key not in made:
            made[key] = tmp_path_factory.mktemp("made") / "out"
            chosen = ImageOptions(sizes=((32, 32),), **options, **more)
            run = RunOptions(container=container, shard_nbytes=9_000, workers=2)
            images_to_shards(photos, made[key], chosen, run)
        if not fresh:
            return made[key]
        return Path(shutil.copytree(made[key], tmp_path_factory.mktemp("fresh") / "out"))

    return prepare


def whole(path: Path) -> dict[str, Any]:
    ds = open_dataset(path)
    return ds.__getitems__(range(len(ds)))


def expected(prepare: Callable[..., Path], name: str) -> torch.Tensor:
    """Return what a loader must show of the photos: [N, C, H, W]."""
    options = dict(WAYS[name][1])
    grey = options.get("grayscale", False)
    raw = whole(prepare("raw", grayscale=True) if grey else prepare("raw"))["image"]
    if options.get("store") != "jpeg":
        return raw
    found = []
    mode, sampling = ("GRAY", "Gray") if grey else ("RGB", "420")
    for image in raw.permute(0, 2, 3, 1).numpy():
        pixels = np.ascontiguousarray(image)
        data = simplejpeg.encode_jpeg(pixels, options.get("quality", 95), mode, sampling)
        found.append(simplejpeg.decode_jpeg(data, mode))
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2)


@pytest.mark.parametrize("name", ENCODED)
def test_a_loader_shows_the_encoded_resize_of_every_photo(
    name: str, prepare: Callable[..., Path]
) -> None:
    ds = open_dataset(prepare(name))
    assert len(ds.manifest.splits["train"].counts) > 1 or "jpeg" in name
    assert ds.manifest.version == 5
    want = expected(prepare, name)
    batch = ds.__getitems__([3, 0, 3, -1])
    assert torch.equal(batch["image"], want[[3, 0, 3, -1]])
    assert batch["image"].stride() == want[[3, 0, 3, -1]].stride()
    assert all(torch.equal(ds[n]["image"], image) for n, image in enumerate(want))
    assert whole(prepare(name))["key"] == whole(prepare("raw"))["key"]


@pytest.mark.parametrize("name", ENCODED)
def test_statistics_are_those_of_what_a_loader_shows(
    name: str, prepare: Callable[..., Path]
) -> None:
    ds = open_dataset(prepare(name))
    pixels = expected(prepare, name).double() / 255
    assert ds.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), rel=1e-9)
    assert ds.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), rel=1e-9)


@pytest.mark.parametrize("name", ENCODED)
def test_every_way_of_reading_gives_the_same_batches(
    name: str, prepare: Callable[..., Path]
) -> None:
    ds = open_dataset(prepare(name))
    want = expected(prepare, name)
    for residency in ("disk", "ram", "device", "auto"):
        loader = Loader(ds, 4, shuffle=False, drop_last=False, residency=residency)
        assert torch.equal(torch.cat([batch["image"] for batch in loader]), want)
    plain = DataLoader(ds, batch_size=4)
    assert torch.equal(torch.cat([batch["image"] for batch in plain]), want)
    chosen = ds.select([7, 1, 9])
    assert torch.equal(chosen.__getitems__([0, 1, 2])["image"], want[[7, 1, 9]])
    again = pickle.loads(pickle.dumps(chosen))
    assert torch.equal(again[2]["image"], want[9])
    first = next(iter(Loader(Weighted(ds, [0.0] * (COUNT - 1) + [1.0]), 2)))
    assert torch.equal(first["image"], want[[-1, -1]])
    mixed = next(iter(Loader(Mix({ds: 1, open_dataset(prepare(name)): 1}), 6, shuffle=False)))
    assert mixed["image"].shape[0] == 6


@pytest.mark.parametrize("name", ["jpeg", "blosc"])
def test_a_loader_goes_on_where_its_state_says(name: str, prepare: Callable[..., Path]) -> None:
    ds = open_dataset(prepare(name))
    batches = [batch["image"] for batch in Loader(ds, 2, seed=4)]
    stopped = Loader(ds, 2, seed=4)
    taken = iter(stopped)
    next(taken), next(taken)
    other = Loader(open_dataset(prepare(name)), 2, seed=4)
    other.load_state_dict(stopped.state_dict())
    assert all(map(torch.equal, [batch["image"] for batch in other], batches[2:]))


@pytest.mark.parametrize("name", ["jpeg", "zstd", "blosc"])
def test_workers_forked_after_a_first_read_decode_too(
    name: str, prepare: Callable[..., Path]
) -> None:
    ds = open_dataset(prepare(name))
    want = ds.__getitems__(range(COUNT))["image"]  # threads of this process have begun
    loader = DataLoader(ds, batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat([batch["image"] for batch in loader]), want)


def test_masks_are_compressed_with_their_photos(photos: Path, tmp_path: Path) -> None:
    masks = tmp_path / "masks"
    for path in photos.rglob("*.png"):
        mask = masks / path.relative_to(photos)
        mask.parent.mkdir(parents=True, exist_ok=True)
        seed = int(path.stem)
        mask.write_bytes(encode_image(smooth_image(50 + seed, 40, seed=seed)[..., 0] // 9, ".png"))
    found = {}
    for name, (container, way) in WAYS.items():
        if "grey" not in name:
            options = ImageOptions(sizes=((32, 32),), fit="pad", masks=masks, **way)
            run = RunOptions(container=container, shard_nbytes=20_000)
            images_to_shards(photos, tmp_path / name, options, run)
            found[name] = whole(tmp_path / name)
    for name, batch in found.items():
        assert torch.equal(batch["mask"], found["raw"]["mask"]), name
        assert torch.equal(batch["transform"], found["raw"]["transform"]), name


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_jpegs_of_any_size_come_as_a_list_or_padded(
    container: Any, photos: Path, tmp_path: Path
) -> None:
    for store in ("raw", "jpeg"):
        options = ImageOptions(sizes=((24, 24),), fit="longest", store=store)
        run = RunOptions(container=container, shard_nbytes=3_000)
        images_to_shards(photos, tmp_path / store, options, run)
    raw, ds = open_dataset(tmp_path / "raw"), open_dataset(tmp_path / "jpeg")
    padded = open_dataset(tmp_path / "jpeg", padded=True).__getitems__(range(COUNT))
    batches = Loader(ds, 3, shuffle=False, drop_last=False)
    found = [image for batch in batches for image in batch["image"]]
    encoding = Encoding(codec="jpeg", level=95, chroma="420")
    for number, sample in enumerate(raw):
        pixels = np.ascontiguousarray(sample["image"].permute(1, 2, 0).numpy())
        want = simplejpeg.decode_jpeg(encode_sample(encoding, pixels))
        assert np.array_equal(found[number].permute(1, 2, 0), want)
        height, width = want.shape[:2]
        corner = padded["image"][number, :, :height, :width].permute(1, 2, 0)
        assert np.array_equal(corner, want)
    with pytest.raises(SelectionError, match="differs in length from sample to sample"):
        Loader(ds, 3, residency="device")


def test_jpegs_in_buckets_are_dense_batches(photos: Path, tmp_path: Path) -> None:
    for store in ("raw", "jpeg"):
        options = ImageOptions(sizes=((32, 32),), fit="bucket", bucket_step=8, store=store)
        images_to_shards(photos, tmp_path / store, options, RunOptions(shard_nbytes=3_000))
    raw, ds = open_dataset(tmp_path / "raw"), open_dataset(tmp_path / "jpeg")
    encoding = Encoding(codec="jpeg", level=95, chroma="420")
    for batch, pixels in zip(Loader(ds, 3, last="pad"), Loader(raw, 3, last="pad"), strict=True):
        assert batch["key"] == pixels["key"]
        for found, image in zip(batch["image"], pixels["image"], strict=True):
            data = encode_sample(encoding, np.ascontiguousarray(image.permute(1, 2, 0).numpy()))
            assert np.array_equal(found.permute(1, 2, 0), simplejpeg.decode_jpeg(data))


@pytest.mark.parametrize("name", ["zstd", "blosc"])
@pytest.mark.parametrize("depth", [8, 16])
def test_zarr_alone_reads_what_is_compressed(
    name: str, depth: Any, prepare: Callable[..., Path]
) -> None:
    path = prepare(name, depth=depth)
    group = zarr.open_group(path, mode="r")["train"]
    found = group["image_32"][:][group["valid"][:]]
    assert found.dtype == f"uint{depth}"
    assert np.array_equal(found, whole(path)["image"].permute(0, 2, 3, 1))
    assert group["image_32"].chunks == (1, 32, 32, 3)


def test_boxes_beside_compressed_photos_are_read_by_zarr_too(photos: Path, tmp_path: Path) -> None:
    """Shards are then not planned beforehand, and each is an array."""
    images = [
        {"id": n, "file_name": p.relative_to(photos).as_posix(), "width": w, "height": 40}
        for n, p in enumerate(sorted(photos.rglob("*.png")))
        for w in [50 + int(p.stem)]
    ]
    boxes = [{"image_id": n, "bbox": [1, 2, 9, 9], "category_id": 0} for n in range(0, COUNT, 2)]
    categories = [{"id": 0, "name": "box"}]
    text = json.dumps({"images": images, "annotations": boxes, "categories": categories})
    (tmp_path / "boxes.json").write_text(text)
    for way in ({}, {"compress": "zstd"}):
        options = ImageOptions(sizes=((32, 32),), boxes=tmp_path / "boxes.json", **way)
        run = RunOptions(container="zarr", shard_nbytes=9_000)
        images_to_shards(photos, tmp_path / f"out{len(way)}", options, run)
    raw, packed = whole(tmp_path / "out0"), whole(tmp_path / "out1")
    assert torch.equal(raw["image"], packed["image"])
    assert all(map(torch.equal, raw["boxes"], packed["boxes"]))
    group = zarr.open_group(tmp_path / "out1", mode="r")["train/image_32"]
    arrays = [group[name][:] for name in sorted(group)]
    assert len(arrays) > 1
    assert np.array_equal(np.concatenate(arrays), raw["image"].permute(0, 2, 3, 1))


def test_the_estimate_says_what_is_stored_and_what_rows_take(prepare: Callable[..., Path]) -> None:
    for name in ENCODED:
        ds = open_dataset(prepare(name))
        estimate = estimate_residency(ds)
        maps = chain.from_iterable(ds.all_stretches())
        assert estimate.stored_nbytes == sum(array.nbytes for array in maps)
        assert estimate.row_nbytes is not None
        channels = 1 if "grey" in name else 3
        assert estimate.row_nbytes >= COUNT * 32 * 32 * channels
        assert estimate.stored_nbytes < estimate.row_nbytes


def refit(path: Path, shard: Path, data: bytes) -> None:
    """Give a shard other bytes, and make the manifest promise them."""
    shard.write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["crc32c"]
    files = manifest["splits"]["train"]["files"]["image_32"]
    files["nbytes"][0], files["crc32c"][0] = len(data), crc32c_digits(data)
    whole = to_json({**manifest, "crc32c": crc32c_digits(to_json(manifest))})
    (path / "manifest.json").write_bytes(whole)


def with_index(chunks: bytes, index: NDArray[np.uint64]) -> bytes:
    data = index.astype("<u8").tobytes()
    return chunks + data + crc32c(data).to_bytes(4, "little")


def parts(path: Path) -> tuple[Path, bytes, NDArray[np.uint64]]:
    """Return the first shard, its chunks, and its index [capacity, 2]."""
    shard = next(p for p in sorted((path / "train/image_32/c/0").rglob("*")) if p.is_file())
    capacity = read_manifest(path).splits["train"].capacity or 0
    data = shard.read_bytes()
    end = len(data) - 16 * capacity - 4
    index = np.frombuffer(data[end:-4], "<u8").reshape(capacity, 2).copy()
    return shard, data[:end], index


def shift(index: NDArray[np.uint64], row: int, column: int, by: int) -> NDArray[np.uint64]:
    changed = index.astype(object)
    changed[row, column] += by
    return (changed % (1 << 64)).astype(np.uint64)


@pytest.mark.parametrize("name", ["zstd", "blosc"])
def test_an_index_that_is_not_of_samples_back_to_back_is_refused(
    name: str, prepare: Callable[..., Path]
) -> None:
    path = prepare(name, fresh=True)
    shard, chunks, index = parts(path)
    assert len(index) > 1
    bad = [
        shift(index, 0, 0, 1),
        shift(index, 1, 0, -1),
        shift(index, 1, 0, 1 << 40),
        shift(index, 0, 1, len(chunks)),
        shift(index, len(index) - 1, 1, 1),
        shift(index, 0, 1, -(1 << 63)),
        index[::-1],
        np.zeros_like(index),
        np.full_like(index, (1 << 64) - 1),
        index // 2,
    ]
    for changed in bad:
        refit(path, shard, with_index(chunks, changed))
        with pytest.raises(FormatError, match=r"0: the shard index is not that of .* back to back"):
            whole(path)
    refit(path, shard, with_index(chunks, index)[:-1] + b"?")  # its checksum
    with pytest.raises(FormatError, match="the shard index is not that of"):
        whole(path)
    for data in (b"", with_index(b"", index)):  # too short for its samples
        refit(path, shard, data)
        with pytest.raises(FormatError, match=r"bytes, \d+ rows need"):
            whole(path)
    refit(path, shard, with_index(chunks, index))
    whole(path)


@pytest.mark.parametrize("name", ["zstd", "blosc"])
def test_damaged_chunks_are_named_and_never_a_picture(
    name: str, prepare: Callable[..., Path]
) -> None:
    path = prepare(name, fresh=True)
    shard, chunks, index = parts(path)
    for at in (0, 5, 17, len(chunks) // 2, len(chunks) - 1):
        changed = bytearray(chunks)
        changed[at] ^= 4
        refit(path, shard, with_index(bytes(changed), index))
        ds = open_dataset(path)
        row = int(np.searchsorted(index[:, 0], at, side="right")) - 1
        with pytest.raises(FormatError, match=rf"{shard}: sample {row}: its CRC-32C does not"):
            ds.__getitems__(range(len(ds)))
        with pytest.raises(FormatError, match=rf"sample {row}: its CRC-32C does not"):
            list(Loader(ds, 4, drop_last=False))
        assert ds[1 - row]["image"].shape == (3, 32, 32)


@pytest.mark.parametrize("name", ["zstd", "blosc"])
@pytest.mark.parametrize("by", [1, 3, 4, 5, 40])
def test_a_cut_chunk_with_an_index_to_match_is_refused(
    name: str, by: int, prepare: Callable[..., Path]
) -> None:
    path = prepare(name, fresh=True)
    shard, chunks, index = parts(path)
    size = int(index[0, 1])
    cut = index.copy()
    cut[0, 1] = size - by
    filled = index[:, 1] != (1 << 64) - 1
    filled[0] = False
    cut[filled, 0] -= np.uint64(by)
    refit(path, shard, with_index(chunks[: size - by] + chunks[size:], cut))
    with pytest.raises(FormatError, match="sample 0: its CRC-32C does not hold"):
        whole(path)


@pytest.mark.parametrize("name", ENCODED)
def test_what_is_announced_is_where_samples_lie(name: str, prepare: Callable[..., Path]) -> None:
    ds = open_dataset(prepare(name))
    all_of_it = sum(part.nbytes for part in ds.stretches(np.arange(COUNT)))
    assert all_of_it > sum(part.nbytes for part in ds.stretches(np.array([2])))
    encoded = ds._columns.slices("image_32", np.arange(COUNT))
    parts = chain.from_iterable(ds.stretches(np.arange(COUNT)))
    announced = [part.reshape(-1).view(np.uint8) for part in parts]
    for piece in encoded:
        assert any(piece.tobytes() in part.tobytes() for part in announced)


@pytest.mark.parametrize("name", ["zstd", "blosc"])
@pytest.mark.parametrize("shape", [(31, 32, 3), (33, 32, 3), (4000, 4000, 3)])
def test_a_chunk_of_another_size_is_refused_before_it_is_decoded(
    name: str, shape: tuple[int, ...], prepare: Callable[..., Path]
) -> None:
    path = prepare(name, fresh=True)
    shard, chunks, index = parts(path)
    encoding = open_dataset(path).manifest.splits["train"].fields[0].encoding
    assert encoding is not None
    other = encode_sample(encoding, np.zeros(shape, np.uint8))
    grown = index.copy()
    by = len(other) - int(index[0, 1])
    grown[0, 1] = len(other)
    filled = index[:, 1] != (1 << 64) - 1
    filled[0] = False
    grown[filled, 0] = (grown[filled, 0].astype(np.int64) + by).astype(np.uint64)
    refit(path, shard, with_index(other + chunks[int(index[0, 1]) :], grown))
    with pytest.raises(
        FormatError, match=rf"sample 0: decodes to {np.prod(shape)} bytes, expected"
    ):
        whole(path)


def test_jpegs_of_another_size_are_refused(prepare: Callable[..., Path]) -> None:
    path = prepare("jpeg", fresh=True)
    text = (path / "manifest.json").read_bytes().decode()
    manifest = json.loads(text.replace('"shape":[32,32,3]', '"shape":[32,31,3]'))
    del manifest["crc32c"]
    data = to_json({**manifest, "crc32c": crc32c_digits(to_json(manifest))})
    (path / "manifest.json").write_bytes(data)
    with pytest.raises(
        FormatError, match=r"sample 0: a JPEG of .* \[32, 32, 3\], expected \[32, 31"
    ):
        open_dataset(path)[0]


def test_a_transform_that_claims_a_huge_picture_takes_no_memory(
    photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ImageOptions(sizes=((24, 24),), fit="longest", store="jpeg")
    images_to_shards(photos, out, options, RunOptions(shard_nbytes=1 << 20))
    path = out / "train/00000.transform_24.npy"
    data = bytearray(path.read_bytes())
    data[-4:] = (1 << 31).to_bytes(4, "little")  # the height of the last picture
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"sample 10: its size is 24 x 2147483648, sides go up"):
        open_dataset(out)[COUNT - 1]


def test_chunks_in_the_tensor_container_are_refused(prepare: Callable[..., Path]) -> None:
    path = prepare("zstd", fresh=True)
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["crc32c"]
    manifest["container"] = "tensor"
    data = to_json({**manifest, "crc32c": crc32c_digits(to_json(manifest))})
    (path / "manifest.json").write_bytes(data)
    with pytest.raises(FormatError, match=r"container: got 'tensor', expected zarr, for \['image"):
        open_dataset(path)


def test_each_number_is_worked_on_once_by_several_threads() -> None:
    threads = DecodeThreads()
    meeting = threading.Barrier(2 if (os.cpu_count() or 1) > 1 else 1)
    seen: list[int] = []

    def work(number: int) -> None:
        if number < meeting.parties:
            meeting.wait(SECONDS)  # passes only where two are at work at a time
        seen.append(number)

    for count in (0, 1, 50):
        if count == 1:
            meeting = threading.Barrier(1)
        if count == 50:
            meeting = threading.Barrier(2 if len(os.sched_getaffinity(0)) > 1 else 1)
        seen.clear()
        threads.run(count, work)
        assert sorted(seen) == list(range(count))


def test_an_error_ends_the_rest_and_the_threads_go_on_with_the_next() -> None:
    threads = DecodeThreads()

    def work(number: int) -> None:
        if number == 3:
            raise ValueError("three")

    for _ in range(20):
        with pytest.raises(ValueError, match="three"):
            threads.run(10, work)
        threads.run(3, work)


def _in_child(threads: DecodeThreads, sender: Any) -> None:
    seen: list[int] = []
    threads.run(40, seen.append)
    sender.send(sorted(seen))


def test_a_forked_child_has_threads_of_its_own() -> None:
    threads = DecodeThreads()
    threads.run(40, lambda _: None)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_in_child, args=(threads, sender))
    child.start()
    assert receiver.poll(60)
    assert receiver.recv() == list(range(40))
    child.join()
    assert child.exitcode == 0


@pytest.mark.parametrize("fails", [0, 3])
def test_an_error_keeps_no_thread_alive_longer_than_its_dataset(fails: int) -> None:
    threads = DecodeThreads(2)

    def work(number: int) -> None:
        if number >= fails:
            raise ValueError(number)

    gc.disable()  # nothing here may wait for it
    try:
        with suppress(ValueError):
            threads.run(9, work)
        alive = weakref.ref(threads)
        del threads
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("encoding", [Encoding(codec="zstd", level=1), BLOSC], ids=str)
def test_a_sample_has_the_same_bytes_from_any_thread(
    encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numcodecs.blosc.use_threads", None)  # its default; zarr turns them off
    rng = np.random.default_rng(0)
    sample = rng.integers(0, 256, (2048, 2048, 3), np.uint8) // 16
    with ThreadPoolExecutor(1) as thread:
        expected = thread.submit(encode_sample, encoding, sample).result()
    for _ in range(5):
        assert encode_sample(encoding, sample) == expected


def test_no_thread_of_a_forked_child_is_given_the_pool_of_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = DecodeThreads(2)
    threads.run(4, lambda _: None)
    parents = threads._open_pool()
    monkeypatch.setattr(os, "getpid", lambda: -1)  # in a child, threads are as they were
    given: list[ThreadPoolExecutor] = []

    class Pool(ThreadPoolExecutor):
        """Another thread asks while one makes the child's own."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            monkeypatch.setattr(decode_threads, "ThreadPoolExecutor", ThreadPoolExecutor)
            given.append(threads._open_pool())
            super().__init__(*arguments, **options)

    monkeypatch.setattr(decode_threads, "ThreadPoolExecutor", Pool)
    given.append(threads._open_pool())
    assert len(given) == 2
    assert parents not in given
    assert threads._open_pool() in given
