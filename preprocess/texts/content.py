"""The bytes of a text file: opened safely, decompressed, and as UTF-8 without a mark."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

from preprocess.errors import SampleError
from preprocess.texts.inflate import inflate
from preprocess.texts.kinds import (
    HEAD_NBYTES,
    Compression,
    byte_order_mark,
    compression_of,
    why_not_text,
)
from preprocess.texts.options import TextOptions

BLOCK_NBYTES: Final = 1 << 22
"""Bytes of text that are worked on at once: large enough that calls cost nothing."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds, decompressed.

    Attributes:
        head: The first bytes.
        chunks: All bytes in order.
    """

    head: bytes
    chunks: Iterator[bytes]


def open_content(
    file: IO[bytes], key: str, nbytes: int | None = None, max_nbytes: int | None = None
) -> Content:
    """Return what an opened file holds, decompressed if its first bytes say that it needs to be.

    Args:
        file: At its beginning.
        key: Names it in errors.
        nbytes: What is read at once of a file that is not compressed; None for a block.
        max_nbytes: What a compressed file may hold.

    Raises:
        SampleError: From `chunks`, or here from the first of them: the file is damaged, or holds
            more than it may.
    """
    head = file.read(HEAD_NBYTES)
    file.seek(0)
    compression = compression_of(head)
    if compression is None:
        together = BLOCK_NBYTES if nbytes is None else nbytes
        chunks = iter(lambda: file.read(together), b"")
        return Content(head, chunks)
    chunks = _limited(inflate(file, compression, key), compression, key, max_nbytes)
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= HEAD_NBYTES:
            break
    return Content(first[:HEAD_NBYTES], _gathered(first, chunks))


def _limited(
    chunks: Iterator[bytes], compression: Compression, key: str, max_nbytes: int | None
) -> Iterator[bytes]:
    """Yield the same bytes, up to a limit."""
    nbytes = 0
    for chunk in chunks:
        nbytes += len(chunk)
        if max_nbytes is not None and nbytes > max_nbytes:
            raise SampleError(
                key,
                f"decompressed from {compression} it has more than the {max_nbytes:,} bytes that "
                "files may have; raise --max-item-bytes",
            )
        yield chunk


def _gathered(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in blocks."""
    waiting, nbytes = [first], len(first)
    for chunk in chunks:
        waiting.append(chunk)
        nbytes += len(chunk)
        if nbytes >= BLOCK_NBYTES:
            yield b"".join(waiting)
            waiting, nbytes = [], 0
    if nbytes:
        yield b"".join(waiting)


@dataclass(frozen=True, slots=True)
class Text:
    """A file as text.

    Attributes:
        chunks: UTF-8 without a mark, cut anywhere; not proven to be valid, unless the file was in
            another encoding.
        offset: Bytes of the mark that was removed; 0 in other encodings, whose places count the
            bytes of the text as UTF-8.
    """

    chunks: Iterator[bytes]
    offset: int


def open_text(file: IO[bytes], key: str, options: TextOptions, nbytes: int | None = None) -> Text:
    """Return the text of an opened file, from its beginning.

    Args:
        file: At its beginning.
        key: Names it in errors.
        options: The encoding, and so on.
        nbytes: As for `open_content`.

    Raises:
        SampleError: From `chunks` or here: the file is damaged, is known to be no text, or is not
            in the encoding that it should be in.
    """
    content = open_content(file, key, nbytes, options.max_item_nbytes)
    mark = byte_order_mark(content.head)
    encoding = mark[1] if mark else options.other_encoding or "utf-8"
    if encoding == "utf-8" and (reason := why_not_text(content.head)):
        raise SampleError(key, reason)
    marked = len(mark[0]) if mark else 0
    chunks = _without(content.chunks, marked)
    if encoding == "utf-8":
        return Text(chunks, marked)
    return Text(_transcoded(chunks, encoding, marked, key, options), 0)


def _without(chunks: Iterator[bytes], nbytes: int) -> Iterator[bytes]:
    first = next(chunks, b"")[nbytes:]
    if first:
        yield first
    yield from chunks


def _transcoded(
    chunks: Iterator[bytes], encoding: str, offset: int, key: str, options: TextOptions
) -> Iterator[bytes]:
    """Yield the text as UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)("replace" if options.replaces else "strict")
    held = 0  # bytes of a letter that began in the chunk before
    try:
        for chunk in chunks:
            held = len(decoder.getstate()[0])
            text = decoder.decode(chunk)
            offset += len(chunk)
            if text:
                yield _encoded(text, key, options)
        held = len(decoder.getstate()[0])
        if text := decoder.decode(b"", final=True):
            yield _encoded(text, key, options)
    except UnicodeDecodeError as error:
        place = offset - held + error.start
        raise SampleError(
            key, f"not valid {encoding.upper()}: {error.reason} at byte {place:,}"
        ) from error
    except UnicodeError as error:  # has no place: no byte order mark
        raise SampleError(
            key, f"not valid {encoding.upper()}: {error}; -le or -be at its end says the order"
        ) from error


def _encoded(text: str, key: str, options: TextOptions) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # UTF-7 and some others decode to lone surrogates
        if options.replaces:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
        raise SampleError(key, f"not valid text: {error.reason}") from error


def invalid_utf8(data: bytes) -> tuple[int, str] | None:
    """Return where UTF-8 ends to be valid, as a byte offset, and why; None if it is valid."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start, f"{error.reason} (0x{data[error.start]:02x})"
    return None
