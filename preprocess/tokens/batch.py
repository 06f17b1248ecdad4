"""Documents of some items, put together so that they are encoded in one call."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from preprocess.texts.documents import Documents

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Piece:
    """Documents of one item, with what names the item and them.

    Attributes:
        key: Of the item.
        documents: Some of its documents.
        is_empty: Whether it is a whole file without any document.
    """

    key: str
    documents: Documents
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class Names:
    """What a user finds documents by, each found only when it is asked for.

    Attributes:
        pieces: Hold the documents.
        ends: [pieces] int64: how many documents there are up to the end of each piece.
        numbers: [N] int64: the number of each document that is left among all of the pieces.
    """

    pieces: Sequence[Piece]
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]

    def __getitem__(self, index: int) -> str:
        """Return the name of a document: see `Documents.name`."""
        number = int(self.numbers[index])
        which = int(np.searchsorted(self.ends, number, side="right"))
        documents = self.pieces[which].documents
        within = number - int(self.ends[which]) + len(documents.texts)
        return documents.name(self.pieces[which].key, within)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Documents that are encoded together.

    Attributes:
        keys: [N] what names each in the dataset.
        names: [N] what names each where it is refused.
        places: [N] int64 a number of each that those of other items do not share.
        texts: [N] texts.
        pairs: [N] second texts, or None.
        metadata: [N] JSON, or None.
        special_text: Documents that hold text which looks like a special token.
    """

    keys: list[bytes]
    names: Names
    places: NDArray[np.int64]
    texts: "pa.LargeStringArray"
    pairs: "pa.LargeStringArray | None"
    metadata: "pa.LargeStringArray | None"
    special_text: int = 0

    def without(self, refused: Collection[int]) -> "Batch":
        """Return the documents but those of these numbers."""
        kept = np.ones(len(self.keys), np.bool_)
        kept[list(refused)] = False
        return self.filtered(kept)

    def filtered(self, kept: NDArray[np.bool_]) -> "Batch":
        """Return the documents that are kept."""
        if kept.all():
            return self
        import pyarrow as pa

        chosen = pa.array(kept)
        return Batch(
            keys=[key for key, keep in zip(self.keys, kept.tolist(), strict=True) if keep],
            names=replace(self.names, numbers=self.names.numbers[kept]),
            places=self.places[kept],
            texts=self.texts.filter(chosen),
            pairs=None if self.pairs is None else self.pairs.filter(chosen),
            metadata=None if self.metadata is None else self.metadata.filter(chosen),
            special_text=self.special_text,
        )


def gather_pieces(pieces: Sequence[Piece]) -> Batch:
    """Put the documents of some pieces together, in order."""
    ends = np.cumsum([len(piece.documents.texts) for piece in pieces], dtype=np.int64)
    return Batch(
        keys=[key for piece in pieces for key in _keys(piece)],
        names=Names(tuple(pieces), ends, np.arange(ends[-1])),
        places=np.concatenate([_places(piece) for piece in pieces]),
        texts=_joined([piece.documents.texts for piece in pieces]),
        pairs=_joined([piece.documents.pairs for piece in pieces]),
        metadata=_joined([piece.documents.metadata for piece in pieces]),
    )


def _keys(piece: Piece) -> list[bytes]:
    """Return the key of each document: the path, with `@byte` or `:row` if the file holds several.

    The byte is that of the record's beginning, in the decompressed text.
    """
    name = piece.key.encode(errors="surrogateescape")
    places = piece.documents.places.tolist()
    if piece.documents.lines is not None:
        return [b"%s@%d" % (name, place) for place in places]
    return [b"%s:%d" % (name, place) if place else name for place in places]


def _places(piece: Piece) -> NDArray[np.int64]:
    """Return a number for each document that those of other items do not share."""
    from google_crc32c import value

    name = piece.key.encode(errors="surrogateescape")
    return piece.documents.places ^ (np.int64(value(name)) << np.int64(31))


def _joined(columns: Sequence["pa.LargeStringArray | None"]) -> Any:
    import pyarrow as pa

    found = [column for column in columns if column is not None]
    if found and len(found) != len(columns):
        raise ValueError("some documents have a column that others lack")
    if len(found) == 1:
        return found[0]  # Arrow copies even one
    return pa.concat_arrays(found) if found else None


def sizes_of(texts: "pa.LargeStringArray") -> NDArray[np.int64]:
    """Return [N] int64 bytes of each text."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :]
    return np.diff(offsets[: len(texts) + 1])
