"""One sample <-> its encoded bytes. Both directions, so that nothing else knows the codecs.

What is decoded has a size that is known beforehand, from the manifest or the sample's transform;
bytes that would decode to anything else are refused before memory is taken for them.

Source:
    zstd: RFC 8878. Blosc 1 chunk: README_CHUNK_FORMAT.rst of c-blosc (sizes at bytes 4 and 12).
    Behind both the CRC-32C of what is compressed, little-endian: zarr v3's codec "crc32c".
"""

from concurrent.futures import ThreadPoolExecutor
from threading import current_thread, main_thread
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.crc32c import extend
from loaders.format.encoding import Encoding

CRC_NBYTES: Final = 4

_BLOSC_HEADER: Final = 16
_BLOSC_CODEC: Final = b"lz4"
_BITSHUFFLE: Final = 2
"""Blosc's number of it: photos become 1.36 times smaller, not 1.17."""

_COLOURS: Final = {1: "GRAY", 3: "RGB"}
"""Channels -> what libjpeg calls them."""


def encode_sample(encoding: Encoding, sample: NDArray[Any]) -> bytes:
    """Encode one sample.

    Args:
        encoding: How.
        sample: [H, W, C] uint8 for JPEG, of any dtype and shape for the others; C-contiguous.
    """
    if encoding.codec == "jpeg":
        import simplejpeg

        return bytes(
            simplejpeg.encode_jpeg(
                sample,
                quality=encoding.level,
                colorspace=_COLOURS[sample.shape[-1]],
                colorsubsampling=encoding.chroma or "Gray",
            )
        )
    data = sample.reshape(-1).view(np.uint8)
    if encoding.codec == "zstd":
        from numcodecs import zstd

        packed = bytes(zstd.compress(data, encoding.level))
    else:
        packed = _compress_by_blosc(sample, encoding.level)
    return packed + extend(0, packed).to_bytes(CRC_NBYTES, "little")


def _compress_by_blosc(sample: NDArray[Any], level: int) -> bytes:
    from numcodecs import blosc

    if current_thread() is main_thread():
        # There Blosc uses threads of its own, and gives other bytes each time.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_compress_by_blosc, sample, level).result()
    typed = sample.reshape(-1)  # Blosc takes the size of a value from it
    return bytes(blosc.compress(typed, _BLOSC_CODEC, level, _BITSHUFFLE))


def decode_sample(encoding: Encoding, data: NDArray[np.uint8], out: NDArray[Any]) -> None:
    """Decode one sample into memory of the caller; other threads run on meanwhile.

    Args:
        encoding: How it was encoded.
        data: [bytes] uint8.
        out: Of the sample's dtype and shape, C-contiguous.

    Raises:
        ValueError: They are damaged, or of a sample of another size; says what is wrong.
    """
    try:
        if encoding.codec == "jpeg":
            _decode_jpeg(data, out)
        else:
            _decompress(encoding, data, out)
    except RuntimeError as error:  # of numcodecs
        raise ValueError(str(error)) from error


def picture_shape(data: NDArray[np.uint8]) -> tuple[int, int, int]:
    """Return height, width and channels of a JPEG.

    Raises:
        ValueError: It is none.
    """
    import simplejpeg

    height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    return height, width, 1 if colours == "Gray" else 3


def _decode_jpeg(data: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    import simplejpeg

    shape = picture_shape(data)
    if shape != out.shape:
        raise ValueError(f"a JPEG of [H, W, C] {[*shape]}, expected {[*out.shape]}")
    simplejpeg.decode_jpeg(data, colorspace=_COLOURS[shape[-1]], buffer=out)


def _decompress(encoding: Encoding, data: NDArray[np.uint8], out: NDArray[Any]) -> None:
    packed = data[:-CRC_NBYTES]
    if not len(packed) or extend(0, packed) != int(data[-CRC_NBYTES:].view("<u4")[0]):
        raise ValueError("its CRC-32C does not hold: it was changed or damaged")
    flat = out.reshape(-1).view(np.uint8)
    if encoding.codec == "zstd":
        import zstandard
        from numcodecs import zstd

        try:
            nbytes = zstandard.frame_content_size(packed.data)  # numcodecs takes any smaller one
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
        _expect(nbytes, flat.nbytes)
        zstd.decompress(packed, flat)
    else:
        from numcodecs import blosc

        if len(packed) < _BLOSC_HEADER:
            raise ValueError(f"{len(packed)} bytes, too few for a chunk of Blosc")
        # Blosc trusts its own header in how far it reads.
        nbytes, _, whole = packed[4:_BLOSC_HEADER].view("<u4").tolist()
        _expect(nbytes, flat.nbytes)  # Blosc takes any smaller one
        if whole != len(packed):
            raise ValueError(f"{len(packed)} compressed bytes, its header says {whole}")
        blosc.decompress(packed, flat)


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(f"decodes to {found} bytes, expected {wanted}")
