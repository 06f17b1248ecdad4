"""Text cut into lines: whole lines in blocks, byte ranges of large files, places and numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import numpy as np

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.item_files import open_item
from preprocess.items import Item
from preprocess.texts.arrays import make_texts, texts_from_buffers, valid_utf8
from preprocess.texts.content import BLOCK_NBYTES, invalid_utf8, open_text
from preprocess.texts.documents import Documents, LineNumbers
from preprocess.texts.options import TextOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

RANGE_NBYTES: Final = 1 << 23
"""Large files are cut into items at multiples of this, so that every worker has something to do."""

_SEGMENT_NBYTES: Final = RANGE_NBYTES
"""Newlines are counted, and their number kept, for so many bytes at a time: a range begins with
one, so that what lies before a block of it has been counted but for less than a range."""

_SOON_NBYTES: Final = 1 << 16
"""A chunk of a file is read so much further to its last line's end: most lines end before."""

_NEWLINE: Final = 10
_RETURN: Final = 13


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole lines of a file.

    Attributes:
        data: Their bytes; only the last line of a file may lack its line feed.
        offset: Where they begin in the file.
        first_line: Gives the number of the first of them, from 1; counted once, when it is asked
            for.
        too_long: Bytes of a line that is left out for its length; then there are no data.
    """

    data: bytes
    offset: int
    first_line: Callable[[], int]
    too_long: int = 0

    def refusal(self, key: str, options: TextOptions) -> Documents:
        """Return no documents, and why the line that is too long is not one."""
        name = f"{key}:{self.first_line()}"
        return no_documents(options, SampleError(name, options.refusal_of(self.too_long)))


@dataclass(frozen=True, slots=True)
class Lines:
    """Where the lines of a block lie, without LF and CR LF; empty ones are left out.

    Attributes:
        starts: [N] int64.
        stops: [N] int64, exclusive.
        numbers: [N] int64: each one's number among all lines of the block, from 0.
    """

    starts: "NDArray[np.int64]"
    stops: "NDArray[np.int64]"
    numbers: "NDArray[np.int64]"

    def each(self, block: Block) -> Iterator[tuple[bytes, int, int]]:
        """Yield each line of a block, where it begins in the file, and its number in the block."""
        places = (self.starts.tolist(), self.stops.tolist(), self.numbers.tolist())
        for start, stop, number in zip(*places, strict=True):
            yield block.data[start:stop], block.offset + start, number


def find_lines(data: bytes) -> Lines:
    """Find the lines of a block that are not empty."""
    array = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(array == _NEWLINE)
    ended = not data or data.endswith(b"\n")  # of a line that is left out there are no data
    ends = newlines if ended else np.append(newlines, len(data))
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    # `\r` belongs to a line's end only before `\n`; index -1 is asked for empty first lines alone.
    returns = (array[ends - 1] == _RETURN) & (ends > starts)
    if len(ends) > len(newlines):
        returns[-1] = False
    stops = ends - returns
    filled = np.flatnonzero(stops > starts)
    return Lines(starts[filled], stops[filled], filled)


def read_blocks(files: ItemFiles, item: Item, options: TextOptions) -> Iterator[Block]:
    """Yield the lines of an item's file, or those that begin in the item's range, in blocks.

    Raises:
        SampleError: The file cannot be read, is damaged, or is known to be no text.
    """
    with files.open(item) as file:
        if item.start == 0 and item.stop is None:
            text = open_text(file, item.key, options)
            yield from _counted_blocks(text.chunks, text.offset, options)
        else:
            yield from _range_blocks(files.root, item, file, options)


def _counted_blocks(chunks: Iterator[bytes], offset: int, options: TextOptions) -> Iterator[Block]:
    line = 1
    for data, too_long in _whole_lines(chunks, options.max_document_nbytes):
        yield Block(data, offset, partial(int, line), too_long)
        line += int(np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE)) + bool(too_long)
        offset += len(data) + too_long


def _whole_lines(chunks: Iterator[bytes], most: int) -> Iterator[tuple[bytes, int]]:
    """Yield the same bytes, cut after the last line feed of each chunk.

    Of a line that is not whole after `most` bytes, and at least a chunk, only the length is kept;
    it is yielded with no bytes.
    """
    waiting: list[bytes] = []
    held = dropped = 0
    for chunk in chunks:
        if dropped:
            end = chunk.find(b"\n") + 1
            dropped += end or len(chunk)
            if not end:
                continue
            yield b"", dropped
            chunk, dropped = chunk[end:], 0  # noqa: PLW2901
        cut = chunk.rfind(b"\n") + 1
        if cut:
            # A chunk that ends with a line is not copied, and of others only once, through a view.
            whole = chunk if cut == len(chunk) else memoryview(chunk)[:cut]
            yield b"".join((*waiting, whole)), 0
            waiting = [chunk[cut:]] if cut < len(chunk) else []
            held = len(chunk) - cut
        else:
            waiting.append(chunk)
            held += len(chunk)
            if held > max(most, BLOCK_NBYTES):
                waiting, held, dropped = [], 0, held
    if dropped:
        yield b"", dropped
    elif held:
        yield b"".join(waiting), 0


def _range_blocks(root: Path, item: Item, file: IO[bytes], options: TextOptions) -> Iterator[Block]:
    offset = _first_start(file, item)
    if offset is None:
        return
    if item.start == 0:  # removes a mark, and looks whether this is text at all
        offset = open_text(file, item.key, options).offset
    file.seek(offset)
    chunks = _range_chunks(file, offset, item.stop)
    for data, too_long in _whole_lines(chunks, options.max_document_nbytes):
        first_line = cache(partial(line_number, root, item, offset))
        yield Block(data, offset, first_line, too_long)
        offset += len(data) + too_long


def _first_start(file: IO[bytes], item: Item) -> int | None:
    """Return where the first line begins that begins in the range; None if none does."""
    if item.start == 0:
        return 0
    # A line begins after a newline: the last that counts is the one before the range's last byte.
    position = item.start - 1
    end = item.nbytes - 1 if item.stop is None else item.stop - 1
    file.seek(position)
    while position < end and (data := file.read(min(1 << 16, end - position))):
        found = data.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(data)
    return None


def _range_chunks(file: IO[bytes], offset: int, stop: int | None) -> Iterator[bytes]:
    """Yield the bytes from `offset` to the end of the line that holds the last of the range.

    Each chunk ends with a line where the line ends soon: then nothing has to be put together.
    """
    last = b"\n"
    while stop is None or offset < stop:
        target = offset + BLOCK_NBYTES if stop is None else min(offset + BLOCK_NBYTES, stop)
        file.seek(target - 1)
        target += max(0, file.read(_SOON_NBYTES).find(b"\n"))
        file.seek(offset)
        if not (data := file.read(target - offset)):
            return
        yield data
        offset += len(data)
        last = data[-1:]
    while last != b"\n" and (data := file.read(1 << 16)):
        cut = data.find(b"\n") + 1
        yield data[:cut] if cut else data
        last = b"\n" if cut else b""


def line_number(root: Path, item: Item, offset: int) -> int:
    """Return the number of the line that begins at an offset: one pass over what lies before.

    Many ranges of a file may each hold a record to be named: what was counted is kept, so that
    all of them together read the file twice more at most, and not once each.
    """
    whole, rest = divmod(offset, _SEGMENT_NBYTES)
    known = (str(root), item.key, item.nbytes, item.mtime_ns)
    count = sum(_newlines_of(*known, index * _SEGMENT_NBYTES) for index in range(whole))
    return 1 + count + _count(root, item, offset - rest, rest)


@lru_cache(maxsize=1 << 18)  # 2 TB of text
def _newlines_of(root: str, key: str, nbytes: int, mtime_ns: int, start: int) -> int:
    return _count(Path(root), Item(key, nbytes, mtime_ns), start, _SEGMENT_NBYTES)


def _count(root: Path, item: Item, start: int, nbytes: int) -> int:
    count = 0
    with open_item(root, item) as file:
        file.seek(start)
        while nbytes > 0 and (data := file.read(min(BLOCK_NBYTES, nbytes))):
            count += data.count(b"\n")
            nbytes -= len(data)
    return count


def read_lines(files: ItemFiles, item: Item, options: TextOptions) -> Iterator[Documents]:
    """Yield one document for each line that is not empty.

    Raises:
        SampleError: The file cannot be read, is damaged, or is known to be no text.
    """
    for block in read_blocks(files, item, options):
        if block.too_long:
            yield block.refusal(item.key, options)
            continue
        lines = find_lines(block.data)
        if valid_utf8(block.data):
            if len(lines.starts):
                yield Documents(
                    texts=_texts_of_lines(block.data, lines),
                    places=lines.starts + block.offset,
                    lines=LineNumbers(block.first_line, lines.numbers),
                )
        else:
            yield _one_by_one(block, lines, item.key, options)


def no_documents(options: TextOptions, *errors: SampleError) -> Documents:
    """Return no documents, with every column that the options ask for."""
    none = make_texts([])
    return Documents(
        texts=none,
        places=np.empty(0, np.int64),
        pairs=none if options.pair_key is not None else None,
        metadata=none if options.metadata_keys else None,
        errors=errors,
    )


def _texts_of_lines(data: bytes, lines: Lines) -> "pa.LargeStringArray":
    # Arrow strings lie back to back: what is between the lines is taken out.
    array = np.frombuffer(data, np.uint8)
    inside = array != _NEWLINE
    if b"\r\n" in data:
        inside[:-1] &= (array[:-1] != _RETURN) | inside[1:]
    offsets = np.zeros(len(lines.starts) + 1, np.int64)
    np.cumsum(lines.stops - lines.starts, out=offsets[1:])
    return texts_from_buffers(offsets, array[inside])


def _one_by_one(block: Block, lines: Lines, key: str, options: TextOptions) -> Documents:
    texts: list[str] = []
    places: list[int] = []
    after: list[int] = []
    errors: list[SampleError] = []
    for line, place, number in lines.each(block):
        if not options.replaces and (fault := invalid_utf8(line)):
            offset, reason = place + fault[0], fault[1]
            name = f"{key}:{block.first_line() + number}"
            errors.append(SampleError(name, f"not valid UTF-8: {reason} at byte {offset:,}"))
            continue
        texts.append(line.decode(errors="replace"))
        places.append(place)
        after.append(number)
    return Documents(
        texts=make_texts(texts),
        places=np.array(places, np.int64),
        lines=LineNumbers(block.first_line, np.array(after, np.int64)),
        errors=tuple(errors),
    )
