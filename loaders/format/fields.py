"""What one sample holds: named arrays, and the columns that store them."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

import numpy as np

from loaders.format.encoding import Encoding
from loaders.format.records import (
    RECORD,
    RECORD_DTYPES,
    RecordPart,
    check_record,
    record_dtype,
    record_from_json,
    record_to_json,
)
from loaders.format.strict import Place

Role = Literal[
    "image", "label", "key", "tokens", "length", "mask", "metadata", "record", "list",
    "page", "transform", "pixel_labels", "boxes", "box_labels", "labels", "targets",
]  # fmt: skip
ColumnRole = Literal["values", "offsets"]
DTYPES: Final = ("uint8", "uint16", "uint32")
FLOATS: Final = "float32"
OFFSETS_DTYPE: Final = "uint64"

NEWEST_ROLES: Final = frozenset(
    {"page", "transform", "pixel_labels", "boxes", "box_labels", "labels", "targets", "list"}
)
"""Of what stands beside pictures, and beside the records of a table, since format version 4."""

_ROLE_DTYPES: Final = {
    "offsets": (OFFSETS_DTYPE,),
    "record": (RECORD,),
    "list": RECORD_DTYPES,
    "boxes": (FLOATS,),
    "targets": (FLOATS,),
    "values": (*DTYPES, *RECORD_DTYPES),
}

TRANSFORM: Final = 10
"""Integers of a transform: width and height of the upright picture, the box of it that was taken,
and the box of what is stored that it fills; boxes as left, top, right, bottom."""

MAX_COUNT: Final = 1 << 40
"""Samples in a split, bytes in a sample: far above any dataset, far below any overflow."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """One named array of every sample, or one column that holds it.

    Attributes:
        name: Lower-case identifier; part of file names.
        dtype: Stored type; little-endian where it has an order. "record" for a record.
        shape: Of one sample; () for a scalar, (H, W, C) for an image. Of one value, if `ragged`.
        role: What the values mean: an image, a class index, UTF-8 bytes of the item's place (padded
            with zeros unless ragged), token ids, a count of tokens, bits (8 to a value, the first
            is the lowest), UTF-8 JSON, the columns of a table, the lists of one of its columns, the
            number of a page from 0, what was done to a picture (see TRANSFORM), a class index for
            every pixel, boxes in pixels of what is stored (left, top, right, bottom), a class index
            for every box, 0 or 1 for every class, numbers to be predicted; for columns of ragged
            fields "values" and "offsets".
        ragged: A sample holds any number of values, not one; of an image pixels, row by row.
        record: The parts of a record, in their order in it; None for all others.
        encoding: How each sample is encoded, apart from the others; None for bytes as they are.
            dtype, shape and `ragged` are those of what is decoded.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role | ColumnRole
    ragged: bool = False
    record: tuple[RecordPart, ...] | None = None
    encoding: Encoding | None = None

    def __post_init__(self) -> None:
        """Refuse names, types and shapes outside the format."""
        place = Place(f"field {self.name!r}")
        place.expect(bool(_NAME.fullmatch(self.name)), self.name, f"a name like {_NAME.pattern}")
        allowed = _ROLE_DTYPES.get(self.role, DTYPES)
        place.expect(self.dtype in allowed, self.dtype, f"a dtype of {allowed}")
        place.expect(
            len(self.shape) <= 8
            and all(type(side) is int and side >= 1 for side in self.shape)
            and math.prod(self.shape) <= MAX_COUNT,
            self.shape,
            "up to 8 sides of at least 1",
        )
        place.expect(self._suits_role(), self.shape, f"a shape and dtype for {self.role!r}")
        place.expect(
            (self.record is not None) == (self.role == "record"),
            self.record,
            f"parts exactly where the role is {RECORD!r}",
        )
        if self.record is not None:
            check_record(place, self.record)
        if self.encoding is not None:
            allowed = ("uint8",) if self.encoding.codec == "jpeg" else ("uint8", "uint16")
            place.expect(self.dtype in allowed, self.dtype, f"a dtype of {allowed}, if encoded")
            roles = ("image",) if self.encoding.codec == "jpeg" else ("image", "pixel_labels")
            place.expect(self.role in roles, self.role, f"a role of {roles}, if encoded")
            self.encoding.check(place, self.shape, ragged=self.ragged, nbytes=self.nbytes)

    def _suits_role(self) -> bool:
        sides = len(self.shape) + self.ragged  # a ragged scalar is a row of values
        suits = {
            "image": len(self.shape) == 1 if self.ragged else len(self.shape) >= 3,
            "label": self.shape == () and not self.ragged,
            "key": sides == 1 and self.dtype == "uint8",
            "tokens": sides == 1 and self.dtype != "uint8",
            "length": self.shape == (),
            "page": self.shape == () and not self.ragged and self.dtype == "uint32",
            "transform": self.shape == (TRANSFORM,) and not self.ragged and self.dtype == "uint32",
            "pixel_labels": sides == (1 if self.ragged else 2) and self.dtype != "uint32",
            "boxes": self.shape == (4,) and self.ragged,
            "box_labels": self.shape == () and self.ragged and self.dtype != "uint32",
            "labels": len(self.shape) == 1 and not self.ragged and self.dtype == "uint8",
            "targets": len(self.shape) == 1 and not self.ragged,
            "mask": sides == 1 and self.dtype == "uint8",
            "metadata": sides == 1 and self.ragged and self.dtype == "uint8",
            "record": self.shape == () and not self.ragged,
            "list": self.shape == () and self.ragged,
            "values": not self.ragged,
            "offsets": self.shape == () and not self.ragged,
        }
        return suits.get(self.role, False)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The stored dtype, with its byte order."""
        if self.record is not None:
            return record_dtype(self.record)
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def nbytes(self) -> int:
        """Bytes of one sample, of one value if ragged."""
        return math.prod(self.shape) * self.numpy_dtype.itemsize

    @property
    def varies(self) -> bool:
        """Whether samples take different numbers of bytes."""
        return self.ragged or self.encoding is not None

    @property
    def in_chunks(self) -> bool:
        """Whether encoded samples are inner chunks of one file, whose index says where they lie."""
        return self.encoding is not None and self.encoding.in_chunks

    @property
    def has_offsets(self) -> bool:
        """Whether a column of its own says where each sample lies."""
        return self.varies and not self.in_chunks

    def columns(self) -> tuple["FieldSpec", ...]:
        """Return what is stored for it, one file a shard each.

        A field of fixed shape is its own column, and so is one in chunks. A ragged one has two: its
        values back to back, and where each sample begins and ends among them: uint64
        [samples + 1], from 0. Of JPEG the values are bytes.
        """
        if not self.has_offsets:
            return (self,)
        if self.encoding is None:
            values = replace(self, role="values", ragged=False)
        else:
            values = FieldSpec(name=self.name, dtype="uint8", shape=(), role="values")
        name = f"{self.name}_offsets"
        return values, FieldSpec(name=name, dtype=OFFSETS_DTYPE, shape=(), role="offsets")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        parts: dict[str, Any] = {}
        if self.record is not None:
            parts["record"] = record_to_json(self.record)
        if self.encoding is not None:
            parts["encoding"] = self.encoding.to_json()
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "role": self.role,
            "ragged": self.ragged,
            **parts,
        }

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "FieldSpec":
        """Parse the JSON form; `place` names it in errors."""
        keys = {"name", "dtype", "shape", "role", "ragged"}
        entry = place.partial_mapping(value, keys | {"record", "encoding"})
        is_record = entry.get("role") == "record"
        is_encoded = "encoding" in entry
        more = {"record"} if is_record else set[str]()
        entry = place.mapping(value, keys | more | ({"encoding"} if is_encoded else set()))
        ragged = entry["ragged"]
        place.at("ragged").expect(isinstance(ragged, bool), ragged, "true or false")
        shape = place.at("shape").integers(entry["shape"], low=1, high=MAX_COUNT)
        role = place.at("role").text(entry["role"])
        for known in get_args(Role):
            if role == known:
                name = place.at("name").text(entry["name"])
                dtype = place.at("dtype").text(entry["dtype"])
                record = None
                if is_record:
                    record = record_from_json(place.at("record"), entry["record"])
                encoding = None
                if is_encoded:
                    encoding = Encoding.from_json(place.at("encoding"), entry["encoding"])
                return cls(
                    name=name,
                    dtype=dtype,
                    shape=shape,
                    role=known,
                    ragged=ragged,
                    record=record,
                    encoding=encoding,
                )
        raise place.at("role").wrong(role, f"one of {get_args(Role)}")
