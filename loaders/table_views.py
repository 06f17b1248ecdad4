"""The bytes of records become typed columns: on the host with NumPy, on a device with torch.

Columns of one dtype lie side by side in a record, so a few slices are all that has to be cast.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import SelectionError
from loaders.format.records import RecordPart
from loaders.format.table_lists import length_dtype
from loaders.format.table_schema import ColumnSpec, TableSchema
from loaders.table_columns import CATEGORICAL, NUMERIC, TARGET, Columns
from loaders.table_floats import Floats
from loaders.table_numbers import Numeric, Step, standard_steps, value_steps
from loaders.table_put import Put
from loaders.table_stored import TORCH_DTYPES
from loaders.views import Take, fresh

_NUMPY: Final[dict[str, np.dtype[Any]]] = {"int32": np.dtype(np.int32), "int64": np.dtype(np.int64)}

Codes = Literal["int32", "int64"]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Columns of one dtype that become the same kind of numbers.

    Attributes:
        dtype: As stored.
        spans: Where they lie in a record, in bytes; more than one where other columns stand
            between them.
        steps: From stored numbers to float32; None leaves codes.
        first: What is taken off the codes: 1 where a missing one cannot be.
        missing: What stands for a missing number.
        nullable: Code 0 is a missing number.
        unsigned: Where integers are added to the codes, the sum is of 64 bits without a sign.
    """

    dtype: str
    spans: tuple[slice, ...]
    steps: tuple[Step, ...] | None = None
    first: int = 0
    missing: float = math.nan
    nullable: bool = True
    unsigned: bool = False

    @property
    def width(self) -> int:
        """Numbers in a record."""
        nbytes = sum(int(span.stop) - int(span.start) for span in self.spans)
        return nbytes // np.dtype(self.dtype).itemsize

    def stored(self, rows: NDArray[np.uint8]) -> NDArray[Any]:
        """Return [B, width] of the dtype out of [B, itemsize] bytes."""
        pieces = [rows[:, span] for span in self.spans]
        joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)
        return joined.view(np.dtype(self.dtype).newbyteorder("<"))

    def stored_on_device(self, rows: Tensor) -> Tensor:
        """Return the same on the device of the bytes."""
        pieces = [rows[:, span] for span in self.spans]
        joined = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)
        return joined.view(TORCH_DTYPES[self.dtype])


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One entry of a batch: groups side by side.

    Attributes:
        name: Its key.
        groups: Of the same kind of numbers.
        flat: It is [B], not [B, 1].
        floats: Makes numbers of them; None for codes.
        codes: What codes are widened to.
        put: Widens them on the host.
    """

    name: str
    groups: tuple[Group, ...]
    flat: bool = False
    floats: Floats | None = None
    codes: Codes = "int64"
    put: Put = field(init=False)

    def __post_init__(self) -> None:
        """Plan what is the same for all batches."""
        object.__setattr__(self, "put", Put(self.groups, _NUMPY[self.codes]))

    @property
    def nbytes(self) -> int:
        """Bytes of a row."""
        size = _NUMPY[self.codes].itemsize if self.floats is None else 4
        return self.put.width * size

    def show(self, rows: Tensor, take: Take = fresh) -> Tensor:
        """Return the entry for [B, itemsize] bytes, on their device; `take` is for the host."""
        if rows.device.type == "cpu":
            made = self.on_host(rows.numpy(), take)
            return torch.from_numpy(made.reshape(-1) if self.flat else made)
        shown = self.on_device(rows)
        return shown[:, 0] if self.flat else shown

    def on_host(self, rows: NDArray[np.uint8], take: Take = fresh) -> NDArray[Any]:
        """Return [B, columns] of codes or float32, by NumPy, in memory that `take` gives."""
        if self.floats is not None:
            return self.floats.on_host(rows, take)
        codes = take((len(rows), self.put.width), _NUMPY[self.codes])
        self.put(rows, codes)
        if self.groups[0].first:
            codes -= self.groups[0].first
        return codes

    def on_device(self, rows: Tensor) -> Tensor:
        """Return the same, by torch on the device of the bytes."""
        if self.floats is not None:
            return self.floats.on_device(rows)
        size = (len(rows), sum(group.width for group in self.groups))
        codes = torch.empty(size, dtype=TORCH_DTYPES[self.codes], device=rows.device)
        start = 0
        for group in self.groups:
            codes[:, start : start + group.width] = group.stored_on_device(rows)
            start += group.width
        return codes.sub_(self.groups[0].first) if self.groups[0].first else codes


def check_codes(root: Path, specs: Sequence[ColumnSpec], codes: Codes) -> None:
    """Refuse to show codes narrower than they are.

    Raises:
        SelectionError: Some are int64, and int32 is asked for.
    """
    wide = [spec.name for spec in specs if spec.dtype == "int64" and holds_codes(spec)]
    if codes == "int32" and wide:
        raise SelectionError(f'{root}: codes of {wide} are int64: leave codes="int32" out')


def table_entries(
    schema: TableSchema,
    columns: Columns,
    numeric: Numeric,
    *,
    codes: Codes = "int64",
    record: Sequence[RecordPart] | None = None,
) -> tuple[Entry, ...]:
    """Return the entries of a batch; those without columns are left out.

    Args:
        schema: Of the table.
        columns: What each is shown as.
        numeric: How numbers are.
        codes: How codes of features are.
        record: The parts of a sample, where they may be stored in another order than the schema's.
    """
    places = record_places(schema.record if record is None else record)
    entries = [
        _entry(NUMERIC, _groups(columns.numeric, places, numeric)),
        _entry(CATEGORICAL, _groups(columns.categorical, places, "values"), codes=codes),
        *(
            _entry(spec.name, _groups((spec,), places, "values"), codes=codes)
            for spec in columns.vectors
            if spec.layout != "ragged"
        ),
        *_length_entries(schema, columns, places),
    ]
    target = columns.target
    if target is not None:
        groups = _groups((target,), places, "values")
        if target.kind == "boolean":  # classes 0 and 1
            groups = iter([Group(target.dtype, (places[target.name],), first=1)])
        entries.append(_entry(TARGET, groups, flat=target.kind != "vector"))
    return tuple(entry for entry in entries if entry.groups)


def _length_entries(
    schema: TableSchema, columns: Columns, places: Mapping[str, slice]
) -> Iterator[Entry]:
    """Yield how many values lists have, -1 where one is missing, in the order of the lists."""
    for spec in columns.vectors:
        if spec.layout != "fixed":
            name = schema.length_names[spec.name]
            group = Group(length_dtype(spec), (places[name],), first=1)
            yield Entry(name, (group,), flat=True)


def item_entry(spec: ColumnSpec, codes: Codes) -> Entry:
    """Return what shows the values of lists of a column, of which each row is one."""
    places = {spec.name: slice(0, np.dtype(spec.dtype).itemsize)}
    return _entry(spec.name, _groups((spec.item,), places, "values"), codes=codes)


def _entry(
    name: str, found: Iterator[Group], *, flat: bool = False, codes: Codes = "int64"
) -> Entry:
    groups = tuple(found)
    if not groups or groups[0].steps is None:
        return Entry(name, groups, flat, codes=codes)
    return Entry(name, groups, flat, Floats(groups, missing=groups[0].missing))


def record_places(record: Sequence[RecordPart]) -> dict[str, slice]:
    """Return where each column lies in a record, in bytes."""
    places, offset = {}, 0
    for name, dtype, length in record:
        nbytes = np.dtype(dtype).itemsize * length
        places[name] = slice(offset, offset + nbytes)
        offset += nbytes
    return places


def _groups(
    specs: Sequence[ColumnSpec], places: Mapping[str, slice], numeric: Numeric
) -> Iterator[Group]:
    """Yield columns, which come in the order of the record, as one group a dtype."""
    for (dtype, nullable, all_bits), found in groupby(specs, key=_form):
        members = list(found)
        spans = tuple(_joined(places[spec.name] for spec in members))
        if holds_codes(members[0]):
            yield Group(dtype, spans)
            continue
        standard = numeric == "standardized"
        yield Group(
            dtype,
            spans,
            standard_steps(members) if standard else value_steps(members),
            missing=0.0 if standard else math.nan,
            nullable=nullable,
            unsigned=all_bits == "uint64",
        )


def _form(spec: ColumnSpec) -> tuple[str, bool, str | None]:
    """Return what columns of one group have in common."""
    return spec.dtype, spec.nullable, spec.all_bits


def holds_codes(spec: ColumnSpec) -> bool:
    """Return whether a column is codes of texts, not numbers."""
    return spec.vocabulary is not None or spec.buckets is not None


def _joined(places: Iterator[slice]) -> Iterator[slice]:
    """Yield slices, joined where one begins at the end of the last."""
    last: slice | None = None
    for place in places:
        if last is not None and last.stop == place.start:
            last = slice(last.start, place.stop)
        else:
            if last is not None:
                yield last
            last = place
    if last is not None:
        yield last
