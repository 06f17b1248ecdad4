"""Quotes in tables of text: which ones enclose fields, and where records end (RFC 4180)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from preprocess.errors import SampleError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_QUOTE: Final = ord('"')
_FEED: Final = ord("\n")
_RETURN: Final = ord("\r")
_LITERAL: Final = 0
"""Stands for a quote that encloses nothing, where the byte before a chunk is asked for."""


class QuoteReader:
    """Follows the quotes of a table of text through its chunks.

    A quote at the start of a field opens it; the next one closes it, or is doubled and belongs to
    the field, as if it closed and opened it again. A quote within a field that does not begin with
    one is a letter like others.

    Attributes:
        inside: Whether the bytes so far end inside quotes.
        line: The line that they end in, from 1.
    """

    def __init__(self, delimiter: str, key: str) -> None:
        """Begin at the start of a file.

        Args:
            delimiter: What stands between fields: one ASCII letter.
            key: Names the item in errors.
        """
        self.inside = False
        self._key = key
        self._around = np.zeros(256, bool)  # what may stand before and after a quoted field
        self._around[[*b'\r\n"', ord(delimiter)]] = True
        self._last = ord("\n")  # the byte before this chunk
        self.line = 1
        self._opened_line = 1

    def ends(self, chunk: bytes) -> "NDArray[np.int64]":
        """Take in the next chunk and return where records end in it: after their last byte.

        Records end at line feeds outside quotes; in a chunk that has none, at carriage returns,
        but for one at the end of the chunk: a line feed may follow it.

        Raises:
            SampleError: A quoted field goes on behind its closing quote.
        """
        array = np.frombuffer(chunk, np.uint8)
        quotes = self._enclosing(array)
        opening, closing = quotes[self.inside :: 2], quotes[not self.inside :: 2]
        after = closing[closing + 1 < len(array)] + 1
        wrong = after[~self._around[array[after]]]
        closed = self._last == _QUOTE and not self.inside
        if closed and not self._around[array[0]]:
            wrong = np.zeros(1, np.int64)
        if len(wrong):
            raise self._error(self._line_at(chunk, int(wrong[0])), "a quote inside a quoted field")
        found = self._outside(array, quotes)
        if len(opening):
            self._opened_line = self._line_at(chunk, int(opening[-1]))
        self.inside ^= bool(len(quotes) % 2)
        literal = array[-1] == _QUOTE and (not len(quotes) or quotes[-1] != len(array) - 1)
        self.line = self._line_at(chunk, len(chunk))
        self._last = _LITERAL if literal else int(array[-1])
        return found

    def last_end(self, chunk: bytes) -> int:
        """Take in the next chunk and return where its last record ends; 0 where none does.

        Raises:
            SampleError: A quoted field goes on behind its closing quote.
        """
        if self.inside or self._last in {_QUOTE, _LITERAL} or b'"' in chunk:
            ends = self.ends(chunk)
            return int(ends[-1]) if len(ends) else 0
        # Without quotes, which is ten times as fast: every line feed is an end.
        self.line = self._line_at(chunk, len(chunk))
        self._last = chunk[-1]
        return chunk.rfind(b"\n") + 1 or chunk.rfind(b"\r", 0, len(chunk) - 1) + 1

    def record_starts(self, chunk: bytes) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Take in whole records and return where each begins, and after how many lines.

        Empty lines are no records. Here line feeds, carriage returns and both together end lines
        and records alike, as they do for parsers.

        Raises:
            SampleError: A quoted field goes on behind its closing quote.
        """
        array = np.frombuffer(chunk, np.uint8)
        feeds = array == ord("\n")
        returns = array == ord("\r")
        returns[:-1] &= ~feeds[1:]
        line_ends = np.flatnonzero(feeds | returns) + 1
        even = (np.searchsorted(self._enclosing(array), line_ends) + self.inside) % 2 == 0
        self.ends(chunk)
        starts = np.concatenate((np.zeros(1, np.int64), line_ends[even]))
        starts = starts[starts < len(array)]
        starts = starts[~np.isin(array[starts], np.frombuffer(b"\r\n", np.uint8))]
        return starts, np.searchsorted(line_ends, starts, side="right")

    def check_closed(self) -> None:
        """Refuse a file that ends inside quotes.

        Raises:
            SampleError: It does.
        """
        if self.inside:
            raise self._error(self._opened_line, "a quote that is never closed")

    def too_long(self, held: int) -> SampleError:
        """Return the error for a record that does not end."""
        return self._error(
            self._opened_line if self.inside else self.line,
            f"a record of more than {held:,} bytes, or a quote that is never closed",
        )

    def _enclosing(self, array: "NDArray[np.uint8]") -> "NDArray[np.int64]":
        """Return the positions of the quotes that open and close fields, in turns."""
        quotes = np.flatnonzero(array == _QUOTE)
        opening = quotes[self.inside :: 2]
        before = np.where(opening > 0, array[opening - 1], self._last)
        if self._around[before].all():
            return quotes
        # Some quote is a letter, so the turns are not known in advance.
        found: list[int] = []
        inside = self.inside
        for position in quotes.tolist():
            last = int(array[position - 1]) if position else self._last
            if inside or (
                self._around[last]
                and (last != _QUOTE or position == 0 or found[-1:] == [position - 1])
            ):
                found.append(position)
                inside = not inside
        return np.array(found, np.int64)

    def _outside(
        self, array: "NDArray[np.uint8]", quotes: "NDArray[np.int64]"
    ) -> "NDArray[np.int64]":
        def found(ending: int) -> "NDArray[np.int64]":
            ends = np.flatnonzero(array == ending)
            even = (np.searchsorted(quotes, ends) + self.inside) % 2 == 0
            return np.asarray(ends[even] + 1, np.int64)

        feeds = found(_FEED)
        if len(feeds):
            return feeds
        returns = found(_RETURN)
        return returns[returns < len(array)]

    def _line_at(self, chunk: bytes, position: int) -> int:
        # The end of a line that the chunk before began with a carriage return was counted there.
        begun = self._last == _RETURN and chunk[:1] == b"\n" and position > 0
        return self.line + count_lines(chunk, position) - begun

    def _error(self, line: int, what: str) -> SampleError:
        advice = "a field that holds quotes stands in quotes, with each inner one doubled"
        return SampleError(self._key, f"line {line:,}: {what}; {advice}")


def count_lines(data: bytes, stop: int) -> int:
    """Count the ends of lines before a position: line feeds, carriage returns, and both as one."""
    # Four times as fast as `bytes.count`.
    array = np.frombuffer(data, np.uint8, stop)
    count = int(np.count_nonzero(array == _FEED))
    if b"\r" in data:
        count += data.count(b"\r", 0, stop) - data.count(b"\r\n", 0, stop)
    return count


@dataclass(frozen=True, slots=True)
class Records:
    """Some whole records.

    Attributes:
        data: Their bytes.
        line: The line that they begin in, from 1.
        after: The line that what follows them begins in.
    """

    data: bytes
    line: int
    after: int


def whole_records(chunks: Iterator[bytes], delimiter: str, key: str, most: int) -> Iterator[bytes]:
    """Yield the same bytes, cut where records end.

    Raises:
        SampleError: The quotes are not paired, or a record has more than `most` bytes.
    """
    for records in numbered_records(chunks, delimiter, key, most):
        yield records.data


def numbered_records(
    chunks: Iterator[bytes], delimiter: str, key: str, most: int, least: int = 0
) -> Iterator[Records]:
    """Yield the same bytes, cut where records end, and the numbers of their lines.

    Args:
        chunks: The bytes, cut anywhere.
        delimiter: What stands between fields.
        key: Names the item in errors.
        most: Bytes of a record.
        least: Bytes of chunks that are yielded together.

    Raises:
        SampleError: The quotes are not paired, or a record has more than `most` bytes.
    """
    quotes = QuoteReader(delimiter, key)
    waiting: list[bytes | memoryview] = []
    ended: list[bytes | memoryview] = []  # whole records that wait for more
    held = nbytes = 0
    line = 1
    for chunk in chunks:
        nbytes += len(chunk)
        cut = quotes.last_end(chunk)
        if cut:
            # Views: a copy of all that is cut would cost a tenth of the whole reading.
            ended += (*waiting, memoryview(chunk)[:cut])
            rest = chunk[cut:]
            waiting = [rest] if rest else []
            held = len(rest)
            if nbytes >= least:
                after = quotes.line - count_lines(rest, len(rest))
                yield Records(b"".join(ended), line, after)
                line = after
                ended, nbytes = [], 0
        else:
            waiting.append(chunk)
            held += len(chunk)
            if held > most + len(chunk):
                raise quotes.too_long(held)
    quotes.check_closed()
    if ended or waiting:
        yield Records(b"".join((*ended, *waiting)), line, quotes.line)
