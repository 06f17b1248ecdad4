"""Compressed bytes -> their content: every member and frame, whole or refused."""

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final, Protocol

from preprocess.errors import SampleError
from preprocess.texts.kinds import HEAD_NBYTES, Compression, compression_of

_PIECE: Final = 1 << 16
"""Compressed bytes that are read at once."""

_ZSTD_PIECE: Final = 1 << 12
"""The same for zstd, whose decoder gives all that a piece holds: at most 128 KiB for 4 bytes, so
128 MB even from a file that is made to burst."""

_ZSTD_LEAST: Final = 1 << 6
"""A piece after one that has burst."""

_OUTPUT: Final = 1 << 20
"""Bytes that are given at a time, at most."""

_ZSTD_WINDOW: Final = 1 << 31
"""The largest window of the format's tools (`zstd --long=31`), which large corpora use."""


class _Decoder(Protocol):
    """One member or frame, in the manner of `bz2.BZ2Decompressor`."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def pieces(self, data: bytes) -> Iterator[bytes]: ...


class _Limited:
    """A bz2 or xz stream, whose decoder keeps what it has not used yet."""

    def __init__(self, decoder: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
        self._decoder = decoder

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield self._decoder.decompress(data, _OUTPUT)
        while not self._decoder.eof and not self._decoder.needs_input:
            yield self._decoder.decompress(b"", _OUTPUT)


class _Gzip:
    """A gzip member."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def pieces(self, data: bytes) -> Iterator[bytes]:
        out = self._decoder.decompress(data, _OUTPUT)
        yield out
        # A full answer may have left more inside, even when no input is left.
        while not self._decoder.eof and (self._decoder.unconsumed_tail or len(out) == _OUTPUT):
            out = self._decoder.decompress(self._decoder.unconsumed_tail, _OUTPUT)
            yield out


class _Zstd:
    """A zstd frame, or a skippable one."""

    def __init__(self, decompressor: Any) -> None:
        self._decoder = decompressor.decompressobj()

    @property
    def eof(self) -> bool:
        return bool(self._decoder.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._decoder.unused_data)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield self._decoder.decompress(data)


def inflate(file: IO[bytes], compression: Compression, key: str) -> Iterator[bytes]:
    """Yield the content of a compressed file from where it stands.

    Members and frames follow one another as long as the file goes on; zero bytes may pad gzip and
    xz files.

    Args:
        file: The compressed bytes.
        compression: What they are.
        key: Names the item in errors.

    Raises:
        SampleError: The file ends too early, is damaged, or goes on with something else.
    """
    pads = compression in {"gzip", "xz"}
    make = _makers(compression)
    piece = _ZSTD_PIECE if compression == "zstd" else _PIECE
    decoder: _Decoder | None = None
    data = b""
    least = _ZSTD_LEAST if compression == "zstd" else piece
    most = piece
    try:
        while True:
            data = data or file.read(piece)
            if decoder is None:
                data = data.lstrip(b"\0") if pads else data
                data = data or file.read(piece)
                if not data:
                    return
                if pads and data[:1] == b"\0":
                    continue
                data = _next_start(data, file, compression, key)
                decoder = make()
            if not data:
                raise SampleError(key, f"truncated: the {compression} data end in the middle")
            nbytes = 0
            for out in decoder.pieces(data):
                nbytes += len(out)
                for start in range(0, len(out), _OUTPUT):  # what works on it takes several times it
                    yield out[start : start + _OUTPUT] if len(out) > _OUTPUT else out
            piece = min(most, max(least, len(data) * _OUTPUT // max(1, nbytes)))
            data = decoder.unused_data if decoder.eof else b""
            decoder = None if decoder.eof else decoder
    except (zlib.error, lzma.LZMAError, OSError, _zstd_error(compression)) as error:
        # bz2 says that its data are damaged by an OSError without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise SampleError(key, f"damaged {compression} data: {error}") from error


def _next_start(data: bytes, file: IO[bytes], compression: Compression, key: str) -> bytes:
    """Return the data, with more of the file if they are short, when a new member begins there."""
    while len(data) < HEAD_NBYTES and (more := file.read(HEAD_NBYTES)):
        data += more
    if compression_of(data) == compression:
        return data
    offset = file.tell() - len(data)
    raise SampleError(
        key, f"{compression} data are followed by something else at byte {offset:,} of the file"
    )


def _makers(compression: Compression) -> Any:
    if compression == "gzip":
        return _Gzip
    if compression == "bzip2":
        return lambda: _Limited(bz2.BZ2Decompressor())
    if compression == "xz":
        return lambda: _Limited(lzma.LZMADecompressor(format=lzma.FORMAT_XZ))
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return lambda: _Zstd(decompressor)


def _zstd_error(compression: Compression) -> type[Exception]:
    if compression != "zstd":
        return zlib.error
    import zstandard

    return zstandard.ZstdError
