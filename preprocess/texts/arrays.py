"""Arrow arrays of strings: made from bytes, looked over, turned into JSON.

# NOTE [ Arrays without pandas ]
`pyarrow.array` imports pandas, where it is installed, to ask whether it was given something of it;
so does `to_numpy`. That is a quarter of a second and 20 MB of a command that has no use for it. So
what every run needs is made of buffers.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


def make_texts(texts: Sequence[str]) -> "pa.LargeStringArray":
    """Return strings, none of which holds a lone surrogate, as an array."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=offsets[1:])
    return texts_from_buffers(offsets, b"".join(encoded))


def chosen_texts(
    texts: "pa.LargeStringArray", positions: "NDArray[np.int64]"
) -> "pa.LargeStringArray":
    """Return the texts at some positions."""
    import pyarrow as pa

    indices = pa.Int64Array.from_buffers(
        pa.int64(), len(positions), [None, pa.py_buffer(np.ascontiguousarray(positions, np.int64))]
    )
    return texts.take(indices)


def beginnings(texts: "pa.LargeStringArray", most: int) -> list[str]:
    """Return the first letters of each text, at most so many: of long ones no more is copied."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int64)[texts.offset :][: len(texts) + 1].tolist()
    held = memoryview(data) if data is not None else memoryview(b"")
    return [
        # No letter has more than four bytes; the last one may be cut.
        bytes(held[start : min(end, start + 4 * most)]).decode(errors="ignore")[:most]
        for start, end in pairwise(bounds)
    ]


def texts_from_buffers(
    offsets: "NDArray[np.int64]", data: "bytes | NDArray[np.uint8]"
) -> "pa.LargeStringArray":
    """Return an array over UTF-8 that lies back to back; nothing is copied or looked at.

    Args:
        offsets: [N + 1] int64, where each begins and the last ends.
        data: Their bytes.
    """
    import pyarrow as pa

    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers[1:])


def truths_of(array: "pa.BooleanArray") -> "NDArray[np.bool_]":
    """Return [N] truth values without nulls as NumPy has them."""
    if not len(array):
        return np.zeros(0, np.bool_)
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    last = array.offset + len(array)
    return np.unpackbits(bits, bitorder="little", count=last)[array.offset :].view(np.bool_)


def valid_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8; without making a string of them, and at several GB/s."""
    import pyarrow as pa

    whole = texts_from_buffers(np.array([0, len(data)], np.int64), data)
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def json_of_strings(column: Any) -> Any:
    """Return the JSON of each string, with null for null, or None where it needs the exact way.

    Equals `json.dumps(text, ensure_ascii=False)`.
    """
    import pyarrow.compute as pc

    escaped = column
    for plain, escape in _ESCAPES:
        escaped = pc.replace_substring(escaped, plain, escape)
    if pc.any(pc.match_substring_regex(escaped, "[\\x00-\\x1f]")).as_py():
        return None
    quote = _scalar('"')
    return pc.fill_null(pc.binary_join_element_wise(quote, escaped, quote, _scalar("")), "null")


_ESCAPES = (
    ("\\", "\\\\"),
    ('"', '\\"'),
    ("\n", "\\n"),
    ("\r", "\\r"),
    ("\t", "\\t"),
    ("\b", "\\b"),
    ("\f", "\\f"),
)


def json_of_numbers(column: Any) -> Any:
    """Return the JSON of each whole number or truth value, with null for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(pc.cast(column, pa.large_string()), "null")


def json_objects(names: Sequence[str], values: Sequence[Any]) -> Any:
    """Return one JSON object a row out of columns of JSON.

    Equals `json.dumps(..., ensure_ascii=False, separators=(",", ":"))`.
    """
    import json

    import pyarrow.compute as pc

    parts: list[Any] = []
    for index, (name, column) in enumerate(zip(names, values, strict=True)):
        before = "{" if index == 0 else ","
        parts += [_scalar(f"{before}{json.dumps(name, ensure_ascii=False)}:"), column]
    return pc.binary_join_element_wise(*parts, _scalar("}"), _scalar(""))


def _scalar(text: str) -> Any:
    import pyarrow as pa

    return pa.scalar(text, pa.large_string())
