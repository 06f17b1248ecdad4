"""What others serve of the images that `images_peers` measures, in a Python that has one of them.

Each has the images in its own format, raw uint8, uncompressed, read as its documentation advises.
Needs NumPy, torch and that one package; nothing of this project.

Run: PYTHON -m tests.benchmarks.images_peers_serve NAME DATASET FOLDER BATCH_SIZE WORKERS
It writes FOLDER if there is none, serves one epoch in which every image must come once or, in a
last batch that is not full, not at all, says so on stdout, and then the seconds of one more epoch
for every line on stdin, scaled to as many batches as ours. Workers stay from epoch to epoch where
the package lets them; their end is left out.
"""

import importlib.metadata
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

_SHARD_NBYTES: Final = 64_000_000
_MARK: Final = 16
"""Bytes by which a random image is known."""

_SHUFFLED: Final[dict[str, Any]] = {"shuffle": True, "drop_last": True}

Epoch = Callable[[], Iterator[torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be served.

    Attributes:
        dataset: Of this project: its shards of images are `.npy` files.
        folder: For the images in the format of whoever serves them.
        batch_size: Images in a batch.
        workers: Processes that make batches; 0 for this one.
    """

    dataset: str
    folder: str
    batch_size: int
    workers: int


@lru_cache(maxsize=1)
def _shards(dataset: str) -> list[NDArray[np.uint8]]:
    files = sorted(Path(dataset).glob("train/*.image_*.npy"))
    return [np.load(file, mmap_mode="r") for file in files]


def _shape(dataset: str) -> tuple[int, int, int]:
    return _shards(dataset)[0].shape[1:]


def _image(dataset: str, index: int) -> NDArray[np.uint8]:
    """Return an image: [H, W, C] uint8, in memory of its own."""
    for rows in _shards(dataset):
        if index < len(rows):
            return np.array(rows[index])
        index -= len(rows)
    raise IndexError(index)


def _count(dataset: str) -> int:
    return sum(map(len, _shards(dataset)))


def _torch_loader(asked: Asked, data: Any, **options: Any) -> Any:
    kept = {"persistent_workers": True} if asked.workers else {}
    sizes = {"batch_size": asked.batch_size, "num_workers": asked.workers}
    return torch.utils.data.DataLoader(data, **sizes, **kept, **options)


def _images(batch: Any) -> torch.Tensor:
    found: torch.Tensor = batch["image"]
    return found


def _litdata_sample(dataset: str, index: int) -> dict[str, Any]:
    return {"image": torch.from_numpy(_image(dataset, index)), "label": index}


def _litdata(asked: Asked) -> Epoch:
    from litdata import StreamingDataLoader, StreamingDataset, optimize

    if not Path(asked.folder).exists():
        optimize(
            partial(_litdata_sample, asked.dataset),
            list(range(_count(asked.dataset))),
            asked.folder,
            chunk_bytes=_SHARD_NBYTES,
            num_workers=2,
            verbose=False,
        )
    data = StreamingDataset(asked.folder, shuffle=True, drop_last=True)
    kept = {"persistent_workers": True} if asked.workers else {}
    loader = StreamingDataLoader(
        data, batch_size=asked.batch_size, drop_last=True, num_workers=asked.workers, **kept
    )
    return lambda: map(_images, loader)


def _import_torchvision() -> None:
    """Import what Streaming imports, also where it lacks its operators, which nobody calls here.

    Those of the wheel on PyPI are built for CUDA, and do not load beside a torch for CPUs.
    """
    try:
        import torchvision
    except RuntimeError:
        from torch import library

        for name in ("nms", "qnms"):
            schema = "(Tensor boxes, Tensor scores, float overlap) -> Tensor"
            library.define(f"torchvision::{name}", schema)
        import torchvision  # noqa: F401


def _streaming(asked: Asked) -> Epoch:
    _import_torchvision()
    from streaming import MDSWriter, StreamingDataset

    if not Path(asked.folder).exists():
        shape = ",".join(map(str, _shape(asked.dataset)))
        columns = {"image": f"ndarray:uint8:{shape}", "label": "int"}
        with MDSWriter(out=asked.folder, columns=columns, size_limit=_SHARD_NBYTES) as out:
            for index in range(_count(asked.dataset)):
                out.write({"image": _image(asked.dataset, index), "label": index})
    own = Path(f"{asked.folder}_{asked.workers}")  # it refuses a folder that another process reads
    if not own.exists():
        own.symlink_to(asked.folder)
    data = StreamingDataset(local=str(own), shuffle=True, batch_size=asked.batch_size)
    loader = _torch_loader(asked, data, drop_last=True)
    return lambda: map(_images, loader)


def _webdataset(asked: Asked) -> Epoch:
    import webdataset as wds

    folder = Path(asked.folder)
    if not folder.exists():
        folder.mkdir()
        pattern, count = str(folder / "%05d.tar"), -(-_count(asked.dataset) // 4)  # 4 at least
        with wds.ShardWriter(pattern, maxsize=_SHARD_NBYTES, maxcount=count, verbose=0) as out:
            for index in range(_count(asked.dataset)):
                image = _image(asked.dataset, index)
                out.write({"__key__": f"{index:08d}", "image.npy": image, "label.cls": index})
    urls = [str(path) for path in sorted(folder.glob("*.tar"))]
    data = (
        wds.WebDataset(urls, shardshuffle=len(urls))
        .shuffle(1000)
        .decode()
        .to_tuple("image.npy", "label.cls")
        .batched(asked.batch_size, partial=False)
    )
    kept = {"persistent_workers": True} if asked.workers else {}
    loader = wds.WebLoader(data, batch_size=None, num_workers=asked.workers, **kept)
    return lambda: (torch.as_tensor(images) for images, _ in loader)


def _datasets(asked: Asked) -> Epoch:
    import datasets

    if not Path(asked.folder).exists():
        features = datasets.Features(
            {
                "image": datasets.Array3D(_shape(asked.dataset), "uint8"),
                "label": datasets.Value("int64"),
            }
        )
        made = datasets.Dataset.from_generator(
            _datasets_samples,
            features=features,
            gen_kwargs={"dataset": asked.dataset},
            cache_dir=f"{asked.folder}_cache",
        )
        made.save_to_disk(asked.folder)
    stored = datasets.load_from_disk(asked.folder)
    # Without the dtype it widens to int64, and takes far longer.
    data = stored.with_format("torch", columns=["image"], dtype=torch.uint8)
    loader = _torch_loader(asked, data, **_SHUFFLED)
    return lambda: map(_images, loader)


def _datasets_samples(dataset: str) -> Iterator[dict[str, Any]]:
    for index in range(_count(dataset)):
        yield {"image": _image(dataset, index), "label": index}


class _GrainMap:
    """A source of Grain over one mapped `.npy` file."""

    def __init__(self, file: str) -> None:
        self._rows = np.load(file, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": np.asarray(self._rows[index]), "label": index}


def _grain_record(shape: tuple[int, ...], record: bytes) -> dict[str, Any]:
    return {"image": np.frombuffer(record, np.uint8).reshape(shape), "label": 0}


def _grain(asked: Asked, *, mapped: bool) -> Epoch:
    import grain

    path = Path(asked.folder)
    if not path.exists():
        path.mkdir()
        if mapped:
            rows = np.lib.format.open_memmap(
                path / "all.npy", "w+", np.uint8, (_count(asked.dataset), *_shape(asked.dataset))
            )
            np.concatenate(_shards(asked.dataset), out=rows)
            rows.flush()
        else:
            from array_record.python.array_record_module import ArrayRecordWriter

            writer = ArrayRecordWriter(str(path / "all.arrayrecord"), "group_size:1,uncompressed")
            for index in range(_count(asked.dataset)):
                writer.write(_image(asked.dataset, index).tobytes())
            writer.close()
    if mapped:
        source = grain.MapDataset.source(_GrainMap(str(path / "all.npy")))
    else:
        records = grain.sources.ArrayRecordDataSource(str(path / "all.arrayrecord"))
        shape = _shape(asked.dataset)
        source = grain.MapDataset.source(records).map(partial(_grain_record, shape))
    shuffled = source.seed(1).shuffle().batch(asked.batch_size, drop_remainder=True)
    data = shuffled.to_iter_dataset()
    if asked.workers:
        data = data.mp_prefetch(grain.MultiprocessingOptions(num_workers=asked.workers))
    return lambda: (torch.from_numpy(batch["image"]) for batch in data)


class _Arrays:
    """A dataset of torch that gives whole batches of a tensorstore, opened where it is read."""

    def __init__(self, asked: Asked, per_file: int) -> None:
        self._asked = asked
        self._per_file = per_file
        self._store: Any = None

    def __len__(self) -> int:
        return _count(self._asked.dataset)

    def open(self, *, create: bool = False) -> Any:
        import tensorstore as ts

        image = [*_shape(self._asked.dataset)]
        inner: list[dict[str, Any]] = [{"name": "bytes"}]
        sharded = {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": [1, *image],
                "codecs": inner,
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            },
        }
        shape = [self._per_file, *image]
        metadata = {
            "shape": [len(self), *image],
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "codecs": [sharded] if self._per_file > 1 else inner,
        }
        asked = {"driver": "zarr3", "kvstore": {"driver": "file", "path": self._asked.folder}}
        if create:
            return ts.open({**asked, "metadata": metadata}, create=True).result()
        if self._store is None:
            self._store = ts.open(asked, open=True, read=True).result()
        return self._store

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        return torch.from_numpy(self.open()[np.array(indices)].read().result())

    def ahead(self) -> Iterator[torch.Tensor]:
        """Yield the batches of an epoch, two of them being read while one is used."""
        store, size = self.open(), self._asked.batch_size
        order = np.random.default_rng().permutation(len(self))
        starts = range(0, len(order) - size + 1, size)
        reads = []
        for start in starts:
            reads.append(store[order[start : start + size]].read())
            if len(reads) > 2:
                yield torch.from_numpy(reads.pop(0).result())
        for read in reads:
            yield torch.from_numpy(read.result())


def _as_it_is(batch: Any) -> Any:
    return batch


def _tensorstore(asked: Asked, *, per_file: int) -> Epoch:
    data = _Arrays(asked, per_file)
    if not Path(asked.folder).exists():
        store, first = data.open(create=True), 0
        for rows in _shards(asked.dataset):
            for start in range(0, len(rows), per_file):
                piece = rows[start : start + per_file]
                store[first : first + len(piece)].write(np.array(piece)).result()
                first += len(piece)
    if not asked.workers:
        return data.ahead
    fresh = {"multiprocessing_context": "spawn"}  # its threads do not survive a fork
    loader = _torch_loader(asked, data, collate_fn=_as_it_is, **_SHUFFLED, **fresh)
    return lambda: iter(loader)


def _tensordict(asked: Asked) -> Epoch:
    from tensordict import MemoryMappedTensor, TensorDict

    count = _count(asked.dataset)
    if not Path(asked.folder).exists():
        shape = (count, *_shape(asked.dataset))
        made = TensorDict(
            {
                "image": MemoryMappedTensor.empty(shape, dtype=torch.uint8),
                "label": MemoryMappedTensor.from_tensor(torch.arange(count)),
            },
            batch_size=[count],
        )
        for index in range(count):
            made["image"][index] = torch.from_numpy(_image(asked.dataset, index))
        made.memmap(asked.folder)
    data = TensorDict.load_memmap(asked.folder)
    loader = _torch_loader(asked, data, collate_fn=_as_it_is, **_SHUFFLED)
    return lambda: map(_images, loader)


PEERS: Final[dict[str, tuple[str, Callable[[Asked], Epoch]]]] = {
    "LitData": ("litdata", _litdata),
    "Streaming": ("mosaicml-streaming", _streaming),
    "WebDataset": ("webdataset", _webdataset),
    "datasets": ("datasets", _datasets),
    "Grain, ArrayRecord": ("grain", partial(_grain, mapped=False)),
    "Grain, mapped .npy": ("grain", partial(_grain, mapped=True)),
    "tensorstore, a file an image": ("tensorstore", partial(_tensorstore, per_file=1)),
    "tensorstore, sharded zarr": ("tensorstore", partial(_tensorstore, per_file=256)),
    "tensordict": ("tensordict", _tensordict),
}
"""Name -> its package, and what writes its format and serves it."""


def _check(asked: Asked, epoch: Epoch) -> int:
    """Serve an epoch and return its batches.

    Raises:
        ValueError: An image came twice, was none of the dataset, or batches are others.
    """
    own = {rows[n].tobytes()[:_MARK] for rows in _shards(asked.dataset) for n in range(len(rows))}
    shape = (asked.batch_size, *_shape(asked.dataset))
    seen, batches = set(), 0
    for images in epoch():
        if tuple(images.shape) != shape or images.dtype != torch.uint8:
            raise ValueError(f"gave {tuple(images.shape)} {images.dtype}, expected {shape} uint8")
        seen |= {bytes(mark) for mark in images.flatten(1)[:, :_MARK].numpy()}
        batches += 1
    if not seen <= own or len(seen) != batches * asked.batch_size:
        raise ValueError(f"{len(seen)} images in {batches} batches, {len(seen - own)} of them new")
    return batches


def _timed(epoch: Epoch, batches: int, wanted: int) -> float:
    """Return the seconds of an epoch, up to its last batch, scaled to all `wanted`.

    From its very start: who has 500 batches ahead has them done with the first one.
    """
    begin = time.perf_counter()
    served = epoch()
    timed = sum(1 for _ in itertools.islice(served, batches))
    seconds = time.perf_counter() - begin
    for _ in served:  # workers end, outside the timing
        pass
    return seconds / timed * wanted


def main() -> None:
    """Serve from the command line."""
    name, dataset, folder, batch_size, workers = sys.argv[1:]
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print does not get between
    asked = Asked(dataset, folder, int(batch_size), int(workers))
    package, serve = PEERS[name]
    epoch = serve(asked)
    batches = _check(asked, epoch)
    version = importlib.metadata.version(package)
    print(json.dumps({"batches": batches, "version": version}), file=said, flush=True)
    whole = _count(dataset) // asked.batch_size
    for _ in sys.stdin:
        print(_timed(epoch, batches, whole), file=said, flush=True)


if __name__ == "__main__":
    main()
