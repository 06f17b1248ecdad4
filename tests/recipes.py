"""A tiny recipe whose samples follow from the bytes of its items alone, and plans that use it."""

import hashlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from loaders.format.codecs import encode_sample
from loaders.format.encoding import Encoding
from loaders.format.fields import FieldSpec
from loaders.format.files import ITEMS, REPORT
from loaders.format.spec import Container
from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item, Listing
from preprocess.plan import Plan, RunOptions, plan_run
from preprocess.recipe import Maker, Ragged, Rows

BAD = b"bad"
"""Items that begin with these bytes become no sample."""

KEY_NBYTES = 24

STORED: Mapping[str, tuple[Container, Encoding | None]] = {
    "tensor": ("tensor", None),
    "zarr": ("zarr", None),
    "jpeg": ("tensor", Encoding(codec="jpeg", level=90, chroma="420")),
    "zstd": ("zarr", Encoding(codec="zstd", level=1)),
}
"""Ways to store images: the container and their encoding."""


@dataclass(frozen=True, kw_only=True)
class DigestRecipe:
    """Makes an image, a label and a key of each item out of SHAKE-128 of its bytes.

    Attributes:
        side: Height of the image; its width is 4, its channels 3.
        dtype: Of the image.
        classes: Labels are below it.
        fault: The promise to break at an item that begins with "fault"; "" for none.
        block: A FIFO that an item beginning with "block" waits on, to hold a run where it is.
        encoding: Of the image.
    """

    side: int = 2
    dtype: str = "uint8"
    classes: int = 3
    fault: str = ""
    block: str = ""
    encoding: Encoding | None = None

    @property
    def kind(self) -> str:
        return "images"

    def options(self) -> dict[str, Any]:
        return {"side": self.side, "dtype": self.dtype}

    def backend(self, listing: Listing, workers: int) -> str:
        return "threading"

    def facts(self) -> dict[str, Any]:
        return {}

    @property
    def one_to_one(self) -> bool:
        return not any(field.has_offsets for field in self.fields())

    def expected_nbytes(self, item: Item) -> int:
        return sum(field.nbytes for field in self.fields())

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
            FieldSpec(
                name="image_4",
                dtype=self.dtype,
                shape=(self.side, 4, 3),
                role="image",
                encoding=self.encoding,
            ),
            FieldSpec(name="label", dtype="uint8", shape=(), role="label"),
            FieldSpec(name="key", dtype="uint8", shape=(KEY_NBYTES,), role="key"),
        )

    def samples(self, files: ItemFiles, items: Sequence[Item]) -> Iterator[Rows | SampleError]:
        for item in items:
            data = files.read(item)
            if data.startswith(BAD):
                yield SampleError(item.key, "it is bad")
            elif data.startswith(b"fault"):
                yield from self._faulty(item, data)
            else:
                if data.startswith(b"block") and self.block:
                    wait_on(Path(self.block))
                if data.startswith(b"die"):
                    die(data.split()[1].decode(), Path(self.block))
                yield one_row(self._sample(item, data))

    def _sample(self, item: Item, data: bytes) -> dict[str, Any]:
        image, label, _ = self.fields()
        pixels = hashlib.shake_128(data).digest(image.nbytes)
        if data.startswith(b"zero"):
            pixels = bytes(image.nbytes)
        array: Any = np.frombuffer(pixels, image.numpy_dtype).reshape(image.shape)
        if self.encoding is not None:
            encoded = np.frombuffer(encode_sample(self.encoding, array), np.uint8)
            array = Ragged(encoded, np.array([len(encoded)]))
        return {
            "image_4": array,
            "label": np.array(len(data) % self.classes, label.numpy_dtype),
            "key": np.frombuffer(item.key.encode().ljust(KEY_NBYTES, b"\0"), np.uint8),
        }

    def _faulty(self, item: Item, data: bytes) -> Iterator[Any]:
        sample = self._sample(item, data)
        image = sample["image_4"]
        broken: dict[str, dict[str, Any]] = {
            "wrong dtype": {**sample, "image_4": image.astype(np.float32)},
            "wrong shape": {**sample, "image_4": image[:1]},
            "missing field": {"image_4": image, "key": sample["key"]},
            "extra field": {**sample, "mask": sample["key"]},
            "a list": {**sample, "image_4": image.tolist()},
            "label out of range": {**sample, "label": np.array(self.classes, np.uint8)},
        }
        if self.fault == "too many results":
            yield from repeat(one_row(sample))
        elif self.fault == "exception":
            raise OSError(5, "the recipe failed")
        elif self.fault != "too few results":
            yield one_row(broken.get(self.fault, sample))


def one_row(sample: dict[str, Any]) -> Rows:
    """Return rows of one sample; what is no array stays as it is."""
    rows = {n: v[None] if isinstance(v, np.ndarray) else v for n, v in sample.items()}
    return Rows(count=1, arrays=rows)


def die(how: str, mark: Path) -> None:
    """End the process that calls this, or never return; once: only where the mark is not yet."""
    if how == "once":
        if mark.exists():
            return
        mark.touch()
    if how == "slow":
        time.sleep(1.5)
        return
    if how == "exit":
        os._exit(7)
    if how == "segv":
        signal.raise_signal(signal.SIGSEGV)
    if how in {"kill", "once"}:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)  # also until the signal has come


def wait_on(fifo: Path) -> None:
    """Say through the FIFO that this place is reached, and wait until its other end is closed."""
    with fifo.with_suffix(".end").open("rb") as end:
        with fifo.open("wb", buffering=0) as file:
            file.write(b"x")
        end.read()


def write_items(source: Path, contents: dict[str, bytes]) -> None:
    """Write one file an item, with a fixed time of change."""
    for key, data in contents.items():
        path = source / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(10**18, 10**18))


def numbered_items(
    count: int, *, split: str = "train", bad: Sequence[int] = ()
) -> dict[str, bytes]:
    """Return `count` items of a split, those numbered in `bad` not readable."""
    return {
        f"{split}/{index:03d}": (BAD if index in bad else b"item") + b"%d" % index * (index + 1)
        for index in range(count)
    }


def list_items(source: Path, classes: int = 3) -> Listing:
    """List what `write_items` wrote: the top folders are the splits."""
    splits: dict[str, list[Item]] = {}
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        key = path.relative_to(source).as_posix()
        status = path.stat()
        item = Item(key, status.st_size, status.st_mtime_ns)
        splits.setdefault(key.partition("/")[0], []).append(item)
    order = [name for name in ("train", "validation", "test") if name in splits]
    return Listing(
        root=source,
        splits={name: tuple(splits[name]) for name in order},
        classes=tuple(f"class {index}" for index in range(classes)),
    )


def plan_digests(
    source: Path, out: Path, options: RunOptions, recipe: DigestRecipe | None = None
) -> Plan:
    """Plan a run of the recipe over everything in `source`."""
    listing = list_items(source)
    chosen = recipe or DigestRecipe()
    return plan_run(listing, out, dict.fromkeys(listing.splits, chosen), options)


def row_nbytes(recipe: DigestRecipe | None = None) -> int:
    """Return the bytes of one sample, to choose how many go to a shard."""
    return sum(field.nbytes for field in (recipe or DigestRecipe()).fields())


def read_tree(root: Path) -> dict[str, bytes]:
    """Return every file below `root` but those that hold times: name -> bytes."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).as_posix() not in {REPORT, ITEMS}
    }
