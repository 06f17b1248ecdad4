"""The different texts of a column and how often they occur: the same for any cut into blocks."""

from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.files import to_json
from preprocess.tables.columns import string_buffers
from preprocess.tables.text import TIME_PATTERN, first_not, plain_numbers, to_floats

if TYPE_CHECKING:
    import pyarrow as pa

    from preprocess.tables.options import TableOptions

_TOGETHER: Final = 1 << 18
"""Texts that are added before they are merged, at least: each merge looks at all of them."""

_NO_TEXT: Final = -1


class TextTally:
    """Counts texts, in several columns of counts; what is held grows with different texts alone.

    Args:
        columns: Counts of each text, such as one for each split.
        numbers: Takes the numbers of all texts that are added, int32: their places in what `found`
            returns, and -1 behind those of each call.
    """

    def __init__(self, columns: int, numbers: IO[bytes] | None = None) -> None:
        self._values: list[pa.LargeStringArray] = []
        self._counts: list[NDArray[np.int64]] = []
        self._columns = columns
        self._numbers = numbers
        self._old = 0  # arrays of them that were merged before: one, or none yet
        self._merged = 0
        self._waiting = 0

    def add(self, values: "pa.LargeStringArray", counts: NDArray[np.int64]) -> None:
        """Add texts and how often each occurs.

        Args:
            values: [k], without nulls.
            counts: [k, columns].
        """
        self._values.append(values)
        self._counts.append(counts)
        self._waiting += len(values)
        if self._waiting > max(self._merged, _TOGETHER):
            self._merge()

    def _merge(self) -> None:
        import pyarrow as pa

        if not self._values:
            self._values = [pa.array([], pa.large_string())]
            self._counts = [np.empty((0, self._columns), np.int64)]
            self._old = 1
            return
        if len(self._values) == self._old:
            return
        sizes = [len(values) for values in self._values]
        # Those that were merged before come first, and keep their numbers.
        encoded = pa.concat_arrays(self._values).dictionary_encode()
        index = encoded.indices.to_numpy()
        size = len(encoded.dictionary)
        counts = np.concatenate(self._counts)
        sums = np.zeros((size, self._columns), np.int64)
        for number in range(self._columns):
            # Weights are float64, which holds counts of rows exactly.
            if counts[:, number].any():
                sums[:, number] = np.bincount(index, weights=counts[:, number], minlength=size)
        if self._numbers is not None:
            ends = np.cumsum(sizes[self._old :])
            numbers = np.insert(index[self._merged :], ends, _NO_TEXT)
            self._numbers.write(numbers.astype("<i4").data)
        self._values, self._counts, self._old = [encoded.dictionary], [sums], 1
        self._merged, self._waiting = size, 0

    def found(self) -> tuple["pa.LargeStringArray", NDArray[np.int64]]:
        """Return the different texts, in the order in which they came, and [k, columns] counts."""
        self._merge()
        return self._values[0], self._counts[0]


def by_count(
    values: "pa.LargeStringArray", counts: NDArray[np.int64], least: int
) -> NDArray[np.int64]:
    """Return the places of texts that occur often enough: by falling count, ties by their bytes.

    Args:
        values: [k] different texts.
        counts: [k] int64.
        least: Rarer ones are left out; at least 1.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = np.flatnonzero(counts >= least)
    # One key after the other takes half the time of both together.
    by_bytes = kept[pc.sort_indices(values.take(pa.array(kept))).to_numpy()]
    return np.asarray(by_bytes[np.argsort(-counts[by_bytes], kind="stable")])


def by_value(values: "pa.LargeStringArray", options: "TableOptions") -> NDArray[np.int64]:
    """Return the places of texts in ascending order: of numbers if all are, else of bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = {"value": values}
    keys = [("value", "ascending")]
    if len(values) and first_not(values, "float", options) is None:
        table = {"number": to_floats(values, options), **table}
        keys = [("number", "ascending"), *keys]
    found: NDArray[np.int64] = pc.sort_indices(pa.table(table), keys).to_numpy().astype(np.int64)
    return found


def are_numbers(values: "pa.LargeStringArray", options: "TableOptions") -> NDArray[np.bool_]:
    """Return which texts look like numbers, [k] bool."""
    import pyarrow.compute as pc

    plain = plain_numbers(values, options)
    found = pc.match_substring_regex(plain, r"^[-+]?[0-9]*\.?[0-9]+\.?([eE][-+]?[0-9]+)?$")
    return np.asarray(found.to_numpy(zero_copy_only=False))


def are_times(values: "pa.LargeStringArray") -> NDArray[np.bool_]:
    """Return which texts are written like dates or times, [k] bool."""
    import pyarrow.compute as pc

    found = pc.match_substring_regex(values, TIME_PATTERN)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def vocabulary_bytes(values: "pa.LargeStringArray", counts: NDArray[np.int64]) -> bytes:
    """Return the file of a vocabulary: values in the order of their codes, with train counts."""
    import pyarrow as pa

    if len(values) and _are_plain(values):
        # What `to_json` gives, without an object of Python's for each text.
        numbers = pa.array(counts).cast(pa.large_string())
        return b'{"counts":[%b],"values":["%b"]}\n' % (
            _joined(numbers, ","),
            _joined(values, '","'),
        )
    document: dict[str, Any] = {"values": values.to_pylist(), "counts": counts.tolist()}
    return to_json(document)


def _are_plain(values: "pa.LargeStringArray") -> bool:
    """Whether texts stand in JSON as they are: of printable letters of ASCII."""
    data, starts, ends = string_buffers(values)
    data = data[starts[0] : ends[-1]]
    plain = (data >= _BLANK) & (data <= _TILDE) & (data != _QUOTE) & (data != _BACKSLASH)
    return bool(plain.all())


_BLANK, _TILDE, _QUOTE, _BACKSLASH = np.frombuffer(b' ~"\\', np.uint8)


def _joined(values: Any, between: str) -> bytes:
    import pyarrow as pa
    import pyarrow.compute as pc

    together = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
    joined = pc.binary_join(together, pa.scalar(between, values.type))
    return bytes(joined[0].as_buffer())
