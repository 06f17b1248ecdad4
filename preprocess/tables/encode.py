"""A parsed block and a schema -> records: every value is stored exactly, or refused by line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.out_of_range import OutOfRange, clip_or_drop, is_outside, narrow_floats
from loaders.format.ragged import filled_up, length_codes
from loaders.format.table_schema import ColumnSpec, TableSchema
from preprocess.errors import SourceError
from preprocess.recipe import Ragged
from preprocess.tables.block import Block
from preprocess.tables.buffers import validity
from preprocess.tables.coded_texts import coded_array, is_coded, source_of
from preprocess.tables.columns import list_counts, value_at
from preprocess.tables.decimals import NO_MULTIPLE
from preprocess.tables.direct_codes import shifted, taken
from preprocess.tables.encode_lists import Chosen, chosen_lists
from preprocess.tables.list_values import check_items, items_of, vectors_of
from preprocess.tables.options import TableOptions
from preprocess.tables.packed import packed
from preprocess.tables.text_codes import is_coded_text
from preprocess.tables.values import (
    Numbers,
    column_array,
    datetime_part,
    numbers_of,
    texts_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

UNKNOWN: Final = 1
"""Code of a value that the vocabulary does not have."""

NO_CLASS: Final = -1
"""Code of a value of the target that is no class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Turns rows of blocks into records.

    Attributes:
        schema: Of the records.
        options: How numbers are written as text.
        out_of_range: What becomes of features that no code stands for.
    """

    schema: TableSchema
    options: TableOptions
    out_of_range: OutOfRange = "refuse"

    def encode(
        self, block: Block, chosen: Chosen, codes: Mapping[str, NDArray[np.int32]]
    ) -> NDArray[Any]:
        """Encode some rows of a block.

        Args:
            block: Parsed rows.
            chosen: Which of them, in which order.
            codes: Column -> code of each text that `different_texts_in` finds in the block, the
                last for a missing one; of every column with codes.

        Returns:
            [n] records of the schema's dtype, C-contiguous.

        Raises:
            SourceError: A value does not fit; it names file, line, column and value.
        """
        columns: dict[str, NDArray[Any]] = {}
        lengths = self.schema.length_names
        for spec in self.schema.columns:
            if spec.layout == "fixed":
                columns[spec.name] = _Column(spec, block, chosen, self).stored(codes)
                continue
            lists = chosen_lists(block, spec, chosen)
            columns[lengths[spec.name]] = length_codes(lists.counts, lists.missing)
            if spec.layout == "padded":
                values = _Column(spec.item, lists.block, lists.chosen, self).stored(codes)
                columns[spec.name] = filled_up(values, lists.counts, spec.length)
        return packed(columns, len(block.rows[chosen]), self.schema.record_dtype)

    def outside(self, block: Block, chosen: Chosen) -> dict[str, int]:
        """Count the numbers of some rows that no code stands for: column -> how many."""
        found = {
            spec.name: self._column(spec, block, chosen).outside()
            for spec in self.schema.columns
            if not is_coded(spec) and spec.dtype != "float64" and spec.kind != "boolean"
        }
        return {name: count for name, count in found.items() if count}

    def _column(self, spec: ColumnSpec, block: Block, chosen: Chosen) -> "_Column":
        """Return the values of a column in some rows: of varying lists, what these hold."""
        if spec.layout == "fixed":
            return _Column(spec, block, chosen, self)
        lists = chosen_lists(block, spec, chosen)
        return _Column(spec.item, lists.block, lists.chosen, self)

    def lists(
        self, block: Block, chosen: Chosen, codes: Mapping[str, NDArray[np.int32]]
    ) -> dict[str, Ragged]:
        """Encode what lies beside the records of some rows: by field, the values of ragged lists.

        Args:
            block: Parsed rows.
            chosen: Which of them, in which order.
            codes: As for `encode`.

        Raises:
            SourceError: A value does not fit; it names file, line, column and value.
        """
        found = {}
        for name, field in self.schema.list_fields.items():
            spec = self.schema.column(name)
            lists = chosen_lists(block, spec, chosen)
            values = _Column(spec.item, lists.block, lists.chosen, self).stored(codes)
            found[field.name] = Ragged(values, lists.counts)
        return found


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of a block, on its way into records."""

    spec: ColumnSpec
    block: Block
    chosen: Chosen
    encoder: Encoder

    @property
    def array(self) -> "pa.Array":
        source, _ = source_of(self.spec, self.encoder.schema)
        return column_array(self.block.table, source)

    def stored(self, codes: Mapping[str, NDArray[np.int32]]) -> NDArray[Any]:
        """Return what is stored of the chosen rows, of the stored type."""
        if is_coded(self.spec):
            return self.coded(codes[self.spec.name])
        return self.floats() if self.spec.dtype in {"float32", "float64"} else self.whole()

    def coded(self, codes: NDArray[np.int32]) -> NDArray[Any]:
        """Return the codes of texts, of the stored type: the schema has seen that they fit it."""
        spec = self.spec
        array = coded_array(self.block.table, spec)
        if spec.kind != "vector" and spec.role == "feature" and is_coded_text(array):
            return taken(array, self.chosen, codes[:-1].astype(spec.dtype))
        index = texts_of(array).index
        if spec.kind == "vector":
            return self._coded_lists(codes[index].astype(spec.dtype))
        found = codes[index[self.chosen]]
        bad = np.flatnonzero(found < 0)
        if len(bad):
            raise self._error(int(bad[0]), f"none of the {spec.values} classes")
        return found.astype(spec.dtype)

    def _coded_lists(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Put the codes of all lists in rows; what a list lacks to its length is missing."""
        length, counts = self.spec.length, list_counts(self.array)
        bad = np.flatnonzero(counts > length)
        if len(bad):
            said = f"a list of {counts[bad[0]]} values, there is room for {length}"
            raise self._error_at(int(bad[0]), said)
        return filled_up(codes, counts, length)[self.chosen]

    def _check_lengths(self, array: "pa.Array") -> None:
        """Refuse lists of numbers that are not as long as those that are stored."""
        counts = list_counts(array)
        bad = np.flatnonzero((counts != self.spec.length) & validity(array))
        if len(bad):
            said = f"a list of {counts[bad[0]]} numbers, and {self.spec.length} are stored"
            raise self._error_at(int(bad[0]), said)

    @property
    def how(self) -> OutOfRange:
        """What becomes of numbers that no code stands for; without its target no row is kept."""
        return "refuse" if self.spec.role == "target" else self.encoder.out_of_range

    def _numbers(self) -> Numbers:
        try:
            return self._converted(unsigned=self.spec.unsigned)
        except SourceError:
            if self.how == "refuse" or self.spec.kind not in {"integer", "vector"}:
                raise
            # Numbers that are to be clipped may be beyond the range of the stored ones.
            return self._converted(unsigned=not self.spec.unsigned)

    def _converted(self, *, unsigned: bool) -> Numbers:
        spec, array = self.spec, self.array
        if spec.kind == "vector":
            kind, options = spec.item.kind, self.encoder.options
            whole = kind != "float"
            check_items(array, spec, self.block.key)
            self._check_lengths(array)
            items = items_of(array, options, kind=kind, unsigned=unsigned, name=spec.name)
            return vectors_of(items, array, spec.length, whole=whole, unsigned=unsigned)
        source, part = source_of(spec, self.encoder.schema)
        if part is not None:
            # A date is the first microsecond of its day.
            times = numbers_of(array, "datetime", self.encoder.options, name=source)
            found = datetime_part(times.values, "datetime", part)
            return Numbers(found, times.valid, times.index)
        return numbers_of(
            array,
            spec.kind,
            self.encoder.options,
            name=spec.name,
            exponent=spec.exponent,
            unsigned=unsigned,
        )

    def outside(self) -> int:
        """Count the chosen numbers that no code stands for."""
        numbers = self._numbers()
        if self.spec.dtype == "float32":
            _, beyond = narrow_floats(numbers.values, "refuse")
        else:
            beyond = is_outside(numbers.values, numbers.valid, self.spec)
        return int(np.count_nonzero(self._rows(numbers, beyond)))

    def floats(self) -> NDArray[Any]:
        """Return floats in their stored type; NaN for missing ones.

        Those that float32 rounds are listed with the schema.
        """
        numbers = self._numbers()
        values = np.where(numbers.valid, numbers.values, np.nan).astype(np.float64)
        if self.spec.dtype == "float64":
            return self._rows(numbers, values)
        narrow, beyond = narrow_floats(values, self.how)
        if self.how == "refuse":
            self._refuse(numbers, beyond, f"beyond the range of float32{self._remedy()}")
        return self._rows(numbers, narrow)

    def whole(self) -> NDArray[Any]:
        """Return whole numbers as codes: 0 for missing ones, the others from 1 on.

        Booleans are of the same form: 1 for false, 2 for true.
        """
        spec = self.spec
        offset_form = spec.kind == "integer" and spec.all_bits is None
        if offset_form and not source_of(spec, self.encoder.schema)[1]:
            direct = shifted(self.array, *spec.bounds, np.dtype(spec.dtype))
            if direct is not None:
                return direct[self.chosen]
        numbers = self._numbers()
        values, valid = numbers.values, numbers.valid
        if spec.kind == "decimal":
            finer = (values == NO_MULTIPLE) & valid
            self._refuse(numbers, finer, f"no multiple of 10**{spec.exponent}")
        bad = is_outside(values, valid, spec)
        how = self.how
        if how == "refuse":
            unit = f", in units of 10**{spec.exponent}" if spec.exponent else ""
            said = f"outside what {spec.dtype} holds: {spec.shown_range}{unit}{self._remedy()}"
            self._refuse(numbers, bad, said)
        elif bad.any():
            values, valid = clip_or_drop(values, valid, spec, how)
        if not spec.nullable:
            said = "missing, and the values of the column leave no code for that"
            self._refuse(numbers, ~valid, said)
        shift = np.uint64(-spec.base % (1 << 64))
        codes = values.astype(np.int64).view(np.uint64) + shift  # modulo 2**64: exact in range
        codes = np.where(valid, codes, np.uint64(0))
        return self._rows(numbers, codes).astype(spec.dtype)

    def _remedy(self) -> str:
        """Return what to do with a number that has no code; among the known ones there is none."""
        ways = []
        if self.spec.role != "target":
            ways.append("--out-of-range clip or missing takes it")
        if self.spec.all_bits is None:
            ways.append("prepare the training data with --room")
        return f"; {', or '.join(ways)}" if ways else ""

    def _refuse(self, numbers: Numbers, bad: NDArray[np.bool_], what: str) -> None:
        """Refuse the first chosen row whose value is marked."""
        if bad.any():
            marked = self._rows(numbers, bad).reshape(len(self.block.rows[self.chosen]), -1)
            marked = np.any(marked, axis=1)
            if marked.any():
                raise self._error(int(np.argmax(marked)), what)

    def _rows(self, numbers: Numbers, values: NDArray[Any]) -> NDArray[Any]:
        if numbers.index is None:
            found: NDArray[Any] = values[self.chosen]
            return found
        return values[numbers.index[self.chosen]]

    def _error(self, row: int, what: str) -> SourceError:
        """Return the error for a chosen row."""
        place = np.arange(len(self.block.rows))[self.chosen][row]
        return self._error_at(int(place), what)

    def _error_at(self, place: int, what: str) -> SourceError:
        value = value_at(self.array, place)
        return SourceError(
            f"{self.block.key}:{self.block.rows[place]}: column {self.spec.name!r}: "
            f"{str(value)[:80]!r} is {what}"
        )
