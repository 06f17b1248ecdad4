"""A parsed block and a schema -> records: every value is stored exactly, or refused by line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.ragged import filled_up, length_codes
from loaders.format.table_schema import ColumnSpec, TableSchema
from preprocess.errors import SourceError
from preprocess.recipe import Ragged
from preprocess.tables.block import Block
from preprocess.tables.coded_texts import coded_array, is_coded, source_of
from preprocess.tables.columns import list_counts, value_at
from preprocess.tables.decimals import NO_MULTIPLE
from preprocess.tables.encode_lists import Chosen, chosen_lists
from preprocess.tables.list_values import items_of, vectors_of
from preprocess.tables.options import TableOptions
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
    """

    schema: TableSchema
    options: TableOptions

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
        records = np.zeros(len(block.rows[chosen]), self.schema.record_dtype)
        lengths = self.schema.length_names
        for spec in self.schema.columns:
            if spec.layout == "fixed":
                stored = _Column(spec, block, chosen, self).stored(codes)
                records[spec.name] = stored.reshape(records[spec.name].shape)
                continue
            lists = chosen_lists(block, spec, chosen)
            records[lengths[spec.name]] = length_codes(lists.counts, lists.missing)
            if spec.layout == "padded":
                values = _Column(spec.item, lists.block, lists.chosen, self).stored(codes)
                filled = filled_up(values, lists.counts, spec.length)
                records[spec.name] = filled.reshape(records[spec.name].shape)
        return records

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
            return self._taken(array, codes)
        index = texts_of(array).index
        if spec.kind == "vector":
            return self._coded_lists(codes[index].astype(spec.dtype))
        found = codes[index[self.chosen]]
        bad = np.flatnonzero(found < 0)
        if len(bad):
            raise self._error(int(bad[0]), f"none of the {spec.values} classes")
        return found.astype(spec.dtype)

    def _taken(self, array: "pa.DictionaryArray", codes: NDArray[np.int32]) -> NDArray[Any]:
        """Take the codes of a column of text: by Arrow, without the interpreter's lock."""
        import pyarrow as pa

        indices = array.indices
        if isinstance(self.chosen, slice):
            start, stop, _ = self.chosen.indices(len(indices))
            indices = indices.slice(start, stop - start)
        else:
            indices = indices.take(pa.array(self.chosen))
        found = pa.array(codes[:-1].astype(self.spec.dtype)).take(indices)
        taken: NDArray[Any] = (found.fill_null(0) if found.null_count else found).to_numpy()
        return taken

    def _coded_lists(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Put the codes of all lists in rows; what a list lacks to its length is missing."""
        length, counts = self.spec.length, list_counts(self.array)
        found = np.zeros((len(counts), length), self.spec.dtype)
        bad = np.flatnonzero(counts > length)
        if len(bad):
            said = f"a list of {counts[bad[0]]} values, there is room for {length}"
            raise self._error_at(int(bad[0]), said)
        rows = np.repeat(np.arange(len(counts)), counts)
        found[rows, np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)] = codes
        return found[self.chosen]

    def _check_lengths(self, array: "pa.Array") -> None:
        """Refuse lists of numbers that are not as long as those that are stored."""
        counts = list_counts(array)
        bad = np.flatnonzero((counts != self.spec.length) & np.asarray(array.is_valid()))
        if len(bad):
            said = f"a list of {counts[bad[0]]} numbers, and {self.spec.length} are stored"
            raise self._error_at(int(bad[0]), said)

    def _numbers(self) -> Numbers:
        spec, array = self.spec, self.array
        if spec.kind == "vector":
            whole = spec.dtype not in {"float32", "float64"}
            unsigned = spec.unsigned
            self._check_lengths(array)
            options = self.encoder.options
            items = items_of(array, options, whole=whole, unsigned=unsigned, name=spec.name)
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
            unsigned=spec.unsigned,
        )

    def floats(self) -> NDArray[Any]:
        """Return floats in their stored type; NaN for missing ones.

        Those that float32 rounds are listed with the schema.
        """
        numbers = self._numbers()
        values = np.where(numbers.valid, numbers.values, np.nan).astype(np.float64)
        if self.spec.dtype == "float64":
            return self._rows(numbers, values)
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        self._refuse(numbers, np.isinf(narrow) & ~np.isinf(values), "beyond the range of float32")
        return self._rows(numbers, narrow)

    def whole(self) -> NDArray[Any]:
        """Return whole numbers as codes: 0 for missing ones, the others from 1 on.

        Booleans are of the same form: 1 for false, 2 for true.
        """
        spec = self.spec
        first, last = spec.bounds
        if spec.kind == "integer" and spec.nullable and not source_of(spec, self.encoder.schema)[1]:
            direct = shifted(self.array, first, last, np.dtype(spec.dtype))
            if direct is not None:
                return direct[self.chosen]
        numbers = self._numbers()
        values = numbers.values
        unit = f", in units of 10**{spec.exponent}" if spec.exponent else ""
        if spec.kind == "decimal":
            finer = (values == NO_MULTIPLE) & numbers.valid
            self._refuse(numbers, finer, f"no multiple of 10**{spec.exponent}")
        bad: NDArray[np.bool_] = ((values < first) | (values > last)) & numbers.valid
        self._refuse(numbers, bad, f"outside what {spec.dtype} holds: {first}..{last}{unit}")
        if not spec.nullable:
            said = "missing, and the values of the column leave no code for that"
            self._refuse(numbers, ~numbers.valid, said)
        shift = np.uint64(-spec.base % (1 << 64))
        codes = values.astype(np.int64).view(np.uint64) + shift  # modulo 2**64: exact in range
        codes = np.where(numbers.valid, codes, np.uint64(0))
        return self._rows(numbers, codes).astype(spec.dtype)

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


def shifted(array: "pa.Array", first: int, last: int, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return whole numbers as codes from 1 on, 0 for missing ones, in one pass over the narrow.

    Args:
        array: A column of a block.
        first: The number with code 1.
        last: The largest that has a code of the type.
        dtype: Of the codes.

    Returns:
        [n] codes; None where this is not the way, or a number has no code.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(array.type) or not len(array):
        return None
    bounds = pc.min_max(array)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and not first <= low <= high <= last:
        return None
    stored = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    # Modulo the width of the codes, in which they are exact.
    codes = stored[array.offset : array.offset + len(array)].astype(f"u{dtype.itemsize}")
    codes += codes.dtype.type((1 - first) % (1 << (8 * dtype.itemsize)))
    if array.null_count:
        np.putmask(codes, np.asarray(array.is_null()), 0)  # whatever is stored in their place
    return codes.view(dtype)
