"""What tables add on the reading side: batches of packed records, split into typed columns."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import SelectionError
from loaders.field_rows import FieldRows
from loaders.format.promised import expect_sizes
from loaders.format.table_statistics import ColumnStatistics
from loaders.record_rows import RECORD, RecordPart
from loaders.samples import CLASS, Batch, SampleDataset
from loaders.stretches import Stretches
from loaders.table_columns import TARGET, sort_columns
from loaders.table_files import checked_record, read_classes, read_table, read_vocabulary
from loaders.table_lists import list_entries, open_lists
from loaders.table_numbers import Numeric, moments
from loaders.table_stored import stored_columns
from loaders.table_texts import open_texts
from loaders.table_views import Codes, check_codes, record_places, table_entries
from loaders.views import Part, Take, fresh

_MOST_DIMENSIONS: Final = 600

Shown = Literal["columns", "stored"]

_WITHOUT_FLOAT64: Final = frozenset({"mps"})
"""Kinds of devices that cannot work numbers out exactly: the host does."""


def open_table(
    path: str | Path,
    split: str = "train",
    *,
    numeric: Numeric = "values",
    codes: Codes = "int64",
    shown: Shown = "columns",
    verify: bool = False,
) -> "TableDataset":
    """Open a dataset that `prep table` wrote.

    Manifest and schema are read, and the split's files are compared with the manifest in size;
    shards are mapped when they are first touched.

    Args:
        path: The dataset's folder.
        split: "train", "validation" or "test".
        numeric: "values" shows numbers as they are, rounded to float32, with NaN for missing ones:
            integers above 2**24 and times lose what float32 cannot hold. "standardized" shows
            (value - mean) / std with the statistics of train, 0 for missing ones; the mean is
            taken off exactly, before anything is rounded.
        codes: What codes of features are widened to, "int64" or "int32", which embeddings take as
            well and which is half as much to write; the classes of a target stay int64.
        shown: "columns" makes these. "stored" gives records as they are, at the speed of a copy,
            for a model that calls `columns` by itself, or takes the narrow types.
        verify: Compare the checksum of each file when it is first touched, which reads all of it:
            a flipped bit is then a ChecksumError, not a sample.

    Raises:
        IncompleteError: There is no finished dataset in the folder.
        SelectionError: The dataset is none of a table, or has not this split, or codes beyond
            int32 where these are asked for.
        MissingShardError: A file of the split is not there.
        FormatError: Manifest or schema is damaged, or a file was cut or extended.
        VersionError: A newer format wrote it.
    """
    # Absolute: shards are opened later, perhaps from another working directory.
    return TableDataset(Path(path).absolute(), split, numeric, codes, shown, verify=verify)


class TableDataset(SampleDataset):
    """One split of a table as a map-style torch dataset.

    `ds[i]` is one sample, `ds.__getitems__([...])` a whole batch in one gather; both are dicts,
    without the entries that have no columns:

    - "numeric": float32 [Cn] or [B, Cn], the columns `numeric_names`. Booleans are 0 and 1, dates
      days and datetimes microseconds (UTC) since 1970; NaN is missing. See `open_table` for what
      float32 can hold, and for "standardized".
    - "categorical": int64 or int32 [Cc] or [B, Cc], the columns `categorical_names` as codes for
      embeddings: 0 is missing, 1 unknown, or 1 on buckets where values are hashed.
    - "target": the class, an int or int64 [B], or a number, float32 [] or [B], never standardized.
    - "tokens": int64 [L] or [B, L], ids of the column of texts, and "length", an int or int64 [B],
      how many of them there are, 0 where the text is missing; L is the longest of the batch, filled
      up with the tokenizer's padding, else its end-of-text token, else 0. Of several columns of
      texts each has its own two, called like the column with "_tokens" and "_length" behind it.
    - each column of lists under its own name: float32 [L] or [B, L], or codes as in "categorical".
      Where lists have several lengths, L is the longest of all, or, of ragged ones, of the batch;
      what a list lacks to it is missing, NaN or 0; and how many values each has is an entry called
      like the column with "_length" behind it (see `length_names`), an int or int64 [B], -1 where
      the list is missing.

    With `shown="stored"` a batch holds "record", [B, itemsize] uint8, and over the same memory a
    view for each dtype that occurs, [B, columns] under "int32", "uint16", "float32" and so on, in
    which `stored_places` says where each column lies; texts and ragged lists are as they are
    stored too. `columns(batch)` makes of it what is described above.

    Records travel to a device as the bytes they are stored as, and become columns there. All that
    it returns is private memory. Pickles as its path and options, so worker processes open their
    own maps. Maps are read-only and safe across fork.

    Attributes:
        path: The dataset's folder.
        split: The split's name.
        numeric: How numbers are shown.
        codes: What codes of features are widened to.
        shown: Whether batches hold columns, or records as stored.
        verify: Whether checksums are compared.
        manifest: The dataset's description.
        schema: The columns, with their statistics over train.
        views: The arrays of a batch, for `Loader`: one.
        numeric_names: Columns of "numeric", in its order.
        categorical_names: Columns of "categorical", in its order.
        vector_names: Columns of lists, which are entries of their own.
        length_names: Column of lists of several lengths -> the entry of how many values each has.
        stored_places: Part of a record -> its dtype, and its columns in the view of that.
        target_name: The column to predict; None without one.
        classes: Names of the target's classes; () where it has none.
    """

    def __init__(
        self,
        path: Path,
        split: str,
        numeric: Numeric = "values",
        codes: Codes = "int64",
        shown: Shown = "columns",
        *,
        verify: bool = False,
    ) -> None:
        options = (("numeric", numeric, Numeric), ("codes", codes, Codes), ("shown", shown, Shown))
        for name, value, known in options:
            if value not in get_args(known):
                raise SelectionError(f"{name}={value!r}: expected one of {get_args(known)}")
        self.path = path
        self.split = split
        self.numeric: Numeric = numeric
        self.codes: Codes = codes
        self.shown: Shown = shown
        self.verify = verify
        self.manifest, self.schema = read_table(path)
        if split not in self.manifest.splits:
            stored = ", ".join(self.manifest.splits)
            raise SelectionError(f"{path}: no split {split!r}; stored are {stored}: give split=...")
        record = checked_record(path, split, self.manifest, self.schema)
        expect_sizes(path, self.manifest, split)
        self._rows = FieldRows(path, self.manifest, split, RECORD, verify=verify)
        self._show_all(self.manifest.splits[split].count)
        columns = sort_columns(self.schema, str(path))
        check_codes(path, [*columns.categorical, *columns.vectors], codes)
        self._record = record
        self._stored = stored_columns(record, f"{path}: {split}")
        self.stored_places = self._stored.places
        self._entries = table_entries(self.schema, columns, numeric, codes=codes, record=record)
        self._texts = open_texts(path, split, self.manifest, columns.vectors, verify=verify)
        lists = list_entries(self.schema, codes)
        self._lists = open_lists(path, split, self.manifest, lists, verify=verify)
        beside = (*self._texts.parts(), *self._lists.parts())
        self.views: tuple[Part, ...] = (RecordPart(self._rows.row_nbytes), *beside)
        self._categorical = columns.categorical
        self.numeric_names = tuple(spec.name for spec in columns.numeric)
        self.categorical_names = tuple(spec.name for spec in columns.categorical)
        self.vector_names = tuple(spec.name for spec in columns.vectors)
        self.length_names = self.schema.length_names
        self.target_name = None if columns.target is None else columns.target.name
        self.classes = read_classes(path, self.manifest, columns.target)

    def _opening(self) -> tuple[Callable[..., SampleDataset], tuple[Any, ...]]:
        opening = partial(TableDataset, verify=self.verify)
        return opening, (self.path, self.split, self.numeric, self.codes, self.shown)

    def __repr__(self) -> str:
        target = "no target" if self.target_name is None else f"target {self.target_name!r}"
        return (
            f"TableDataset({str(self.path)!r}, {self.split!r}: {self._counted}, "
            f"{len(self.numeric_names)} numeric and {len(self.categorical_names)} categorical "
            f"columns, {target})"
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest: names the exact dataset."""
        return hashlib.sha256(self.manifest.to_bytes()).hexdigest()

    @property
    def statistics(self) -> Mapping[str, ColumnStatistics]:
        """What the training rows hold, of each column that has statistics."""
        return {s.name: s.statistics for s in self.schema.columns if s.statistics is not None}

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Codes that each of `categorical_names` may have: rows of its embedding."""
        return tuple(self.schema.cardinality(spec.name) for spec in self._categorical)

    @property
    def embedding_sizes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of an embedding for each of `categorical_names`.

        Source:
            fastai, `emb_sz_rule`: min(600, round(1.6 * cardinality**0.56)).
        """
        return tuple(
            (count, min(_MOST_DIMENSIONS, round(1.6 * count**0.56))) for count in self.cardinalities
        )

    @property
    def coding(self) -> tuple[list[Any], dict[str, str]]:
        """What the bytes of records mean: tables with the same can be mixed.

        Returns:
            How numbers are shown, and of each column what its codes depend on; of each column with
            a vocabulary the checksum of its file.
        """
        columns: list[Any] = [self.numeric, self.codes, self.shown, self._record]
        if self.numeric == "standardized":
            columns += [(name, moments(self.schema.column(name))) for name in self.numeric_names]
        columns += [
            (
                *(s.name, s.kind, s.role, s.dtype, s.length, s.layout),
                *(s.offset, s.exponent, s.nullable, s.wraps, s.buckets),
            )
            for s in self.schema.columns
        ]
        paths = {s.name: s.vocabulary for s in self.schema.columns if s.vocabulary is not None}
        return columns, {name: self.manifest.extras[path][1] for name, path in paths.items()}

    def vocabulary(self, name: str) -> tuple[str, ...]:
        """Return the values of a column in the order of their codes.

        Returns:
            Of a feature the values of the codes 2 on; of a target its classes; () where values are
            hashed or no codes.

        Raises:
            FormatError: There is no such column, or its file is damaged.
        """
        return read_vocabulary(self.path, self.manifest, self.schema.column(name))

    def _first(self, batch: dict[str, Any]) -> dict[str, Any]:
        sample = super()._first(batch)
        if self.shown == "stored":
            return sample
        # A class is an int, as in other datasets; a batch of them is collated to the same int64.
        is_class = sample.get(TARGET, torch.empty(0)).dtype == torch.int64
        if is_class and sample[TARGET].ndim == 0:
            sample[TARGET] = sample[TARGET].item()
        for name in (*self._texts.length_names, *self.length_names.values()):
            sample[name] = sample[name].item()
        return sample

    def _codes(self, field: str) -> tuple[NDArray[Any], Mapping[str, int]]:
        names = {spec.name for spec in self._categorical}
        if field == CLASS and self.classes and self.target_name is not None:
            spec = self.schema.column(self.target_name)
            values, first = self.classes, 0
        elif field in names and self.schema.column(field).vocabulary is not None:
            spec = self.schema.column(field)
            values, first = self.vocabulary(field), 2  # after missing and unknown
        else:
            return super()._codes(field)
        codes = self._rows.column(record_places(self._record)[spec.name], spec.dtype)
        numbers = {value: code for code, value in enumerate(values, first)}
        # Wider, so that a missing value, which no target has, does not become 255.
        return (codes.astype(np.int16) - 1 if spec.kind == "boolean" else codes), numbers

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy the records of a batch into an array of the caller.

        Args:
            indices: [B] stored indices, in 0..span-1.
            buffers: "record" -> [B, itemsize] uint8, C-contiguous; with texts what batches have of
                them, with ragged lists "list_0000" and so on, as `views` say.
        """
        self._rows.gather_into(indices, buffers[RECORD])
        self._texts.gather_into(indices, buffers)
        self._lists.gather_into(indices, buffers)

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps that a gather of ascending stored indices [B] reads."""
        yield from self._rows.stretches(indices)
        yield from self._texts.stretches(indices)
        yield from self._lists.stretches(indices)

    @property
    def made_nbytes(self) -> int:
        """Bytes of a row in a batch that are made of what is gathered."""
        if self.shown == "stored":
            return 0
        return sum(entry.nbytes for entry in self._entries)

    def show(self, rows: Mapping[str, Tensor], take: Take = fresh) -> Batch:
        """Turn gathered records, on any device, into a batch there.

        Args:
            rows: "record" -> [B, itemsize] uint8, C-contiguous; with texts what batches have of
                them, with ragged lists "list_0000" and so on -> [B, L, bytes of a value] uint8.
            take: Gives the memory for what is made in host memory.
        """
        if self.shown == "stored":
            return Batch({**rows, **self._stored.views(rows[RECORD])})
        return self.columns(rows, take)

    def columns(self, rows: Mapping[str, Tensor], take: Take = fresh) -> Batch:
        """Make the columns of a batch of what is stored, as `shown="columns"` has them.

        Args:
            rows: A batch of `shown="stored"` on any device; as `show` takes them.
            take: Gives the memory for what is made in host memory.
        """
        device = rows[RECORD].device
        texts = self._texts.show(rows, take)
        if device.type in _WITHOUT_FLOAT64:
            rows = {part.name: rows[part.name].cpu() for part in self.views}
        made = {e.name: e.show(rows[RECORD], take) for e in self._entries}
        made |= self._lists.show(rows, made, take)
        return Batch({**{name: shown.to(device) for name, shown in made.items()}, **texts})
