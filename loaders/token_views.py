"""A torch dataset around one way to look at stored tokens: indices checked, batches gathered."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import FormatError
from loaders.samples import Batch, SampleDataset
from loaders.stretches import Stretches
from loaders.token_store import KEY, METADATA, TokenStore
from loaders.views import Part, Take, fresh


@dataclass(frozen=True, slots=True)
class TokenPart:
    """One array of a batch of tokens; its shape depends on the samples.

    Attributes:
        name: Its key among the arrays.
        dtype: Of the array.
        shape: Samples [B] -> shape of the array.
        on_device: Whether it travels to the device of a batch, or stays in host memory.
        fixed: Whether every sample has one row, of the same shape.
        apart: Whether it can be gathered without the others.
    """

    name: str
    dtype: np.dtype[Any]
    shape: Callable[[NDArray[np.int64]], tuple[int, ...]]
    on_device: bool = True
    fixed: bool = False
    apart: bool = False

    @property
    def shown_as(self) -> str:
        """What a batch calls it."""
        return self.name

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of the array for the samples [B] of a batch."""
        return self.shape(indices), self.dtype


class Look(Protocol):
    """One way to look at stored tokens: plain options beside the store, picklable."""

    @property
    def store(self) -> TokenStore:
        """Where the tokens lie."""
        ...

    @property
    def count(self) -> int:
        """Samples."""
        ...

    def parts(self) -> tuple[Part, ...]:
        """Return the arrays of a batch."""
        ...

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Fill the arrays of a batch."""
        ...

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps in which the samples, ascending, lie."""
        ...

    @property
    def made_nbytes(self) -> int:
        """Bytes that `show` makes of a sample, 0 where these differ or are few."""
        ...

    def show(self, rows: Mapping[str, Tensor], take: Take) -> dict[str, Any]:
        """Turn filled arrays into the entries of a batch, in memory that `take` gives."""
        ...

    def sample(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the only sample of a batch of one."""
        ...


class TokenView(SampleDataset):
    """Tokens as a map-style torch dataset: `ds[i]`, and `ds.__getitems__([...])` a whole batch.

    What a sample holds is said at the method of `TokenDataset` that returned it. For a `Loader` or
    a torch `DataLoader`; neither needs a `collate_fn`. All that it returns is private memory.
    Pickles as path and options, so worker processes open their own maps.

    Attributes:
        path: The dataset's folder.
        split: The split's name.
        look: What samples are, with its options.
        views: The arrays of a batch, for `Loader`.
    """

    def __init__(self, look: Look) -> None:
        self.look = look
        self.path = look.store.path
        self.split = look.store.split
        self.views: tuple[Part, ...] = look.parts()
        self._show_all(look.count)

    def _opening(self) -> tuple[Callable[..., SampleDataset], tuple[Any, ...]]:
        return TokenView, (self.look,)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest: names the exact dataset."""
        return self.look.store.fingerprint

    def __repr__(self) -> str:
        name = type(self.look).__name__.lower()
        return f"TokenView({str(self.path)!r}, {self.split!r}: {self._counted}, {name})"

    def _first(self, batch: dict[str, Any]) -> dict[str, Any]:
        return self.look.sample(batch)

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps that a gather of ascending stored indices [B] reads."""
        return self.look.stretches(indices)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy what belongs to a batch into arrays of the caller.

        Args:
            indices: [B] stored indices, in 0..span-1.
            buffers: An array for each of `views`, of its layout for these indices, C-contiguous.
        """
        self.look.gather_into(indices, buffers)

    @property
    def made_nbytes(self) -> int:
        """Bytes of a sample in a batch, 0 where they differ."""
        return self.look.made_nbytes

    def show(self, rows: Mapping[str, Tensor], take: Take = fresh) -> Batch:
        """Turn gathered arrays, on any device, into a batch: ids become int64 there.

        Args:
            rows: By part.
            take: Gives the memory for ids in host memory.
        """
        return Batch(self.look.show(rows, take))


@dataclass(frozen=True, slots=True)
class Labels:
    """What names a sample beside its tokens, as far as it is stored: "key" and "metadata".

    In layout packed a sample has one of each for every document in its row, one a line.
    """

    store: TokenStore

    @property
    def names(self) -> tuple[str, ...]:
        """The stored ones."""
        return tuple(name for name in (KEY, METADATA) if name in self.store.fields)

    def parts(self) -> tuple[Part, ...]:
        """Return a row of bytes and the samples' shares of it for each; both stay on the host."""
        return tuple(part for name in self.names for part in self._parts(name))

    def _parts(self, name: str) -> tuple[Part, Part]:
        lengths = TokenPart(_lengths(name), np.dtype(np.int64), count_of, on_device=False)
        values = TokenPart(
            name,
            np.dtype(np.uint8),
            lambda i: (int(self._lengths(name, i).sum()),),
            on_device=False,
        )
        return values, lengths

    def _lengths(self, name: str, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        field = self.store.fields[name]
        if field.ragged:
            return self.store.columns.lengths(name, indices)
        return np.full(len(indices), field.shape[0], np.int64)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Fill the arrays."""
        for name in self.names:
            field, columns = self.store.fields[name], self.store.columns
            lengths = buffers[_lengths(name)]
            if field.ragged:
                lengths[:] = columns.values_into(name, indices, buffers[name])
            else:
                columns.rows_into(name, indices, buffers[name])
                lengths[:] = field.shape[0]

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps in which they lie."""
        return self.store.columns.stretches(self.names, indices)

    def show(self, rows: Mapping[str, Tensor]) -> dict[str, list[Any]]:
        """Return B keys as text and B dicts of metadata, in layout packed B lists of them."""
        return {name: self._show(name, rows) for name in self.names}

    def _show(self, name: str, rows: Mapping[str, Tensor]) -> list[Any]:
        data = rows[name].numpy().tobytes()
        ends = rows[_lengths(name)].cumsum(0).tolist()
        pieces = [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        decode = self._decode_metadata if name == METADATA else _decode_key
        if self.store.layout == "packed":
            return [[decode(line) for line in piece.split(b"\0") if line] for piece in pieces]
        return [decode(piece) for piece in pieces]

    def _decode_metadata(self, data: bytes) -> dict[str, Any]:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise FormatError(
                f"{self.store.path}: {self.store.split}: {METADATA} of a document is "
                f"{data[:_SHOWN]!r}, expected an object of JSON; run prep check --full"
            )
        return value


_SHOWN: Final = 60
"""Bytes of what is damaged, in a message."""


def _decode_key(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="surrogateescape")


def _lengths(name: str) -> str:
    return f"{name}_lengths"


def widen(ids: Tensor, take: Take) -> Tensor:
    """Return stored ids as int64 in contiguous memory of their own, on the device where they are.

    Args:
        ids: uint16 or uint32, of any strides.
        take: Gives the memory where that is the host's.
    """
    if ids.device.type != "cpu":
        return ids.to(torch.int64, memory_format=torch.contiguous_format)
    # NumPy stays in the thread that asks. torch would call a team of threads for each of the
    # threads that gather: 30 to 570 microseconds for 64 windows of 1,024 on 2 cores, here 25.
    wide = take(tuple(ids.shape), np.dtype(np.int64))
    np.copyto(wide, ids.numpy())
    return torch.from_numpy(wide)


def count_of(indices: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the shape of an array with one element a sample."""
    return (len(indices),)


def first_of(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first sample of a batch whose entries all have one element a sample."""
    return {name: value[0] for name, value in batch.items()}
