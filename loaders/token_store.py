"""One split of a tokens dataset as maps: which layout it has, and the values of each sample."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError, SelectionError
from loaders.format.columns import open_column
from loaders.format.containers import CONTAINERS
from loaders.format.promised import expect_sizes
from loaders.format.spec import Manifest, read_manifest
from loaders.stretches import split_by_shard, stretches
from loaders.token_files import TokenFile, described

if TYPE_CHECKING:
    from loaders.format.fields import FieldSpec

Layout = Literal["stream", "fixed", "packed", "chat"]
TokenizerId = Literal["eos_id", "pad_id", "largest_id"]

TOKENS: Final = "tokens"
LENGTH: Final = "length"
PAIR_START: Final = "pair_start"
DOCUMENT_LENGTHS: Final = "document_lengths"
LOSS_MASK: Final = "loss_mask"
KEY: Final = "key"
METADATA: Final = "metadata"

_LAYOUTS: Final[Mapping[str, Layout]] = {
    LENGTH: "fixed",
    DOCUMENT_LENGTHS: "packed",
    LOSS_MASK: "chat",
}
"""Field that only one layout has -> that layout; without any of them it is "stream"."""


class TokenStore:
    """Where the values of every sample of a split lie; maps are opened when first touched.

    Pickles as its path and split, or as the call that opened the file. Maps are read-only and safe
    across fork.

    Args:
        path: The dataset's folder, or the file.
        split: The split's name.
        file: Another trainer's file, opened: it stands for a dataset of one shard, layout stream.
        name: The field of the tokens, called "tokens" here: one of several columns has its own.
        verify: Compare checksums when shards are first touched.

    Attributes:
        path: The dataset's folder.
        split: The split's name.
        manifest: The dataset's description.
        layout: How documents became samples.
        fields: The stored fields by name.
        dtype: Of the stored tokens.
        ends: [shards] int64, where the tokens of each shard end in the stream of the split; empty
            where rows of one length are stored.

    Raises:
        SelectionError: It holds no tokens, or not this split.
        MissingShardError: A file of the split is not there.
        FormatError: The manifest is damaged, or a file was cut or extended.
    """

    def __init__(
        self,
        path: Path,
        split: str,
        file: TokenFile | None = None,
        *,
        name: str = TOKENS,
        verify: bool = False,
    ) -> None:
        self.path = path
        self.split = split
        self._verify = verify
        self._file = file
        self._name = name
        self.manifest: Manifest = read_manifest(path) if file is None else described(file, split)
        held = {field.name for spec in self.manifest.splits.values() for field in spec.fields}
        if self.manifest.kind != "tokens" and name not in held:
            several = f"{name}_0000" in held
            what = "the tokens of several columns" if several else "no tokens"
            remedy = "open_table" if several else "open_dataset"
            raise SelectionError(
                f"{path}: a dataset of kind {self.manifest.kind!r} holds {what}: open it with "
                f"loaders.{remedy}"
            )
        if split not in self.manifest.splits:
            stored = ", ".join(self.manifest.splits)
            raise SelectionError(f"{path}: no split {split!r}; stored are {stored}: give split=...")
        spec = self.manifest.splits[split]
        is_table = self.manifest.kind != "tokens"  # its other fields are no part of the texts
        own = [field for field in spec.fields if field.name == name or not is_table]
        self.fields: Mapping[str, FieldSpec] = {
            TOKENS if field.name == name else field.name: field for field in own
        }
        if TOKENS not in self.fields:
            raise FormatError(f"{path}: {split} has no field {TOKENS!r}, only {[*self.fields]}")
        self.dtype: np.dtype[Any] = self.fields[TOKENS].numpy_dtype
        found = [layout for name, layout in _LAYOUTS.items() if name in self.fields]
        self.layout: Layout = found[0] if found else "stream"
        if len(found) > 1 or self.fields[TOKENS].ragged != (self.layout in {"stream", "chat"}):
            raise FormatError(f"{path}: {split} has the fields {[*self.fields]}, of no one layout")
        self.ends: NDArray[np.int64] = np.cumsum(spec.values.get(name, ()), dtype=np.int64)
        self._spec = spec
        self._container = CONTAINERS[self.manifest.container]
        columns = {column.name: (column, rows) for column, rows in spec.columns()}
        self._columns = {
            shown + column.name.removeprefix(field.name): columns[column.name]
            for shown, field in self.fields.items()
            for column in field.columns()
        }
        self._row_ends = np.cumsum(spec.counts, dtype=np.int64)  # [shards]
        self._row_starts = np.concatenate(([0], self._row_ends))
        self._maps: dict[tuple[str, int], NDArray[Any]] = {}
        if file is None:
            expect_sizes(path, self.manifest, split)
        else:
            self._maps[TOKENS, 0] = file.values
            self._maps[f"{TOKENS}_offsets", 0] = file.offsets.view("<i8")

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file is not None:
            return TokenStore, (self.path, self.split, self._file)
        return _reopen, (self.path, self.split, self.fingerprint, self._name, self._verify)

    def __len__(self) -> int:
        return self._spec.count

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest: names the exact dataset."""
        return hashlib.sha256(self.manifest.to_bytes()).hexdigest()

    @property
    def width(self) -> int:
        """Ids in a stored row of the layouts with rows of one length."""
        return self.fields[TOKENS].shape[0]

    def tokenizer_id(self, name: TokenizerId) -> int | None:
        """Return an id that the manifest states; None where it does not."""
        tokenizer = self.manifest.recipe.get("tokenizer")
        value = tokenizer.get(name) if isinstance(tokenizer, dict) else None
        most = int(np.iinfo(self.dtype).max)
        if value is not None and not (type(value) is int and 0 <= value <= most):
            raise FormatError(
                f"{self.path}: recipe.tokenizer.{name} is {value!r}, not an integer in 0..{most}"
            )
        return value

    def fill(self, given: int | None, why: str, remedy: str) -> int:
        """Return the id that stands where there is no token: given, padding, or end of text.

        Raises:
            SelectionError: There is none, or it is no id.
        """
        stated = (given, self.tokenizer_id("pad_id"), self.tokenizer_id("eos_id"))
        chosen = next((value for value in stated if value is not None), None)
        if chosen is None:
            raise SelectionError(
                f"{self.path}: {why}, and its tokenizer has no padding and no end-of-text token: "
                f"{remedy}"
            )
        if type(chosen) is not int or not 0 <= chosen <= np.iinfo(self.dtype).max:
            raise SelectionError(f"pad_id={chosen!r}: expected an id that {self.dtype} can hold")
        return chosen

    def expect_layout(self, what: str, allowed: tuple[Layout, ...]) -> None:
        """Refuse a view that does not suit the stored layout.

        Args:
            what: The view, as users write it.
            allowed: Layouts that suit.

        Raises:
            SelectionError: Another layout is stored.
        """
        if self.layout not in allowed:
            raise SelectionError(
                f"{self.path}: {what} needs layout {' or '.join(allowed)}, stored is "
                f"{self.layout}: use {_SERVED[self.layout]}, or prepare the text again with "
                f"--layout {allowed[0]}"
            )

    def column(self, name: str, shard: int) -> NDArray[Any]:
        """Return the map of a stored column: [rows, *shape], read-only.

        Raises:
            MissingShardError: The file is not there.
            FormatError: It is not what the manifest promises.
        """
        found = self._maps.get((name, shard))
        if found is None:
            column, counts = self._columns[name]
            if counts[shard] == 0:
                found = np.empty((0, *column.shape), column.numpy_dtype)
            else:
                place = (self.path, self.manifest, self.split, column.name, shard)
                found = open_column(*place, verify=self._verify)
            self._maps[name, shard] = found
        return found

    @property
    def stored_nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(sum(rows) * column.nbytes for column, rows in self._columns.values())

    def maps(self) -> Iterator[NDArray[Any]]:
        """Open all columns of all shards."""
        for name, (_, rows) in self._columns.items():
            for shard, count in enumerate(rows):
                if count:
                    yield self.column(name, shard)

    def places(self, indices: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Return shard and row of each sample."""
        shards = np.searchsorted(self._row_ends, indices, side="right")
        rows = indices - self._row_starts[shards]
        return list(zip(shards.tolist(), rows.tolist(), strict=True))

    def rows(self, name: str, indices: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return, of a field of fixed shape, the stored row of each sample."""
        places = self.places(indices)
        maps = {shard: self.column(name, shard) for shard, _ in places}
        return [maps[shard][row] for shard, row in places]

    def slices(self, name: str, indices: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return, of a ragged field, the stored values of each sample."""
        places = self.places(indices)
        shards = {shard for shard, _ in places}
        maps = {shard: self.column(name, shard) for shard in shards}
        offsets = {shard: self.column(f"{name}_offsets", shard) for shard in shards}
        return [maps[shard][offsets[shard][row] : offsets[shard][row + 1]] for shard, row in places]

    def lengths(self, name: str, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, of a ragged field, the number of values of each sample: [B] int64."""
        places = self.places(indices)
        offsets = {shard: self.column(f"{name}_offsets", shard) for shard, _ in places}
        found = [offsets[shard][row + 1] - offsets[shard][row] for shard, row in places]
        return np.array(found, np.int64)

    def stretches(self, names: Sequence[str], indices: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield the parts of maps in which fields of some samples, ascending, lie."""
        for shard, rows in split_by_shard(indices, self._row_ends):
            for name in names:
                starts, ends = rows, rows + 1
                if self.fields[name].ragged:
                    offsets = self.column(f"{name}_offsets", shard)
                    starts, ends = offsets[rows], offsets[rows + 1]
                yield from stretches(self.column(name, shard), starts, ends)

    def broken(self, name: str, index: int, what: str) -> FormatError:
        """Return the error for stored values of a sample that cannot be."""
        ((shard, row),) = self.places(np.array([index], np.int64))
        return FormatError(
            f'{self._path(name, shard)}: sample {row}: {what}; run "prep check" or prepare it again'
        )

    def _path(self, name: str, shard: int) -> Path:
        column, _ = self._columns[name]
        return self._container.shard_path(self.path, self.split, shard, column, self._spec.capacity)


_SERVED: Final[Mapping[Layout, str]] = {
    "stream": ".blocks(), .documents() or .padded()",
    "fixed": ".padded()",
    "packed": ".packed()",
    "chat": ".chat() or .documents()",
}


def concatenate_into(pieces: Sequence[NDArray[Any]], buffer: NDArray[Any]) -> None:
    """Copy pieces back to back into a C-contiguous array of as many elements."""
    if pieces:  # NumPy wants at least one
        np.concatenate(pieces, out=buffer.reshape(-1))


def _reopen(path: Path, split: str, fingerprint: str, name: str, verify: bool) -> TokenStore:  # noqa: FBT001
    """Open the dataset again in another process, and only the very same one."""
    store = TokenStore(path, split, name=name, verify=verify)
    if store.fingerprint != fingerprint:
        raise FormatError(f"{path}: the dataset was replaced while it was open; open it again")
    return store
