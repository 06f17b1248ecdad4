"""What the first of two passes keeps of each document, beside its tokens."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loaders.format.fields import FieldSpec
from preprocess.recipe import Ragged
from preprocess.tokens.duplicates import PERMUTATIONS, signatures
from preprocess.tokens.layouts import Encoded
from preprocess.tokens.options import Dedup
from preprocess.tokens.runs import check_ids

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

PAIR_TOKENS: Final = "pair_tokens"
TEXT_NBYTES: Final = "text_nbytes"
DIGEST: Final = "digest"
SIGNATURE: Final = "signature"

DIGEST_NBYTES: Final = 16
"""Of two different texts among 2**40 one pair has the same digest once in 2**49 corpora."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPass:
    """Columns of the dataset that is put in order afterwards.

    Attributes:
        dtype: Of the tokens.
        pairs: Whether documents have a second text.
        dedup: Which duplicates are left out later.
    """

    dtype: str
    pairs: bool
    dedup: Dedup | None

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return what a document has beside tokens, key and metadata.

        The bytes of its text are 8 bytes, little-endian: a text may be larger than 4 GiB.
        """
        fields = [FieldSpec(name=TEXT_NBYTES, dtype="uint8", shape=(8,), role="key")]
        if self.pairs:
            fields.append(
                FieldSpec(name=PAIR_TOKENS, dtype=self.dtype, shape=(), role="tokens", ragged=True)
            )
        if self.dedup == "exact":
            fields.append(FieldSpec(name=DIGEST, dtype="uint8", shape=(DIGEST_NBYTES,), role="key"))
        if self.dedup == "minhash":
            fields.append(
                FieldSpec(name=SIGNATURE, dtype="uint32", shape=(PERMUTATIONS,), role="tokens")
            )
        return tuple(fields)

    def arrays(
        self,
        texts: "pa.LargeStringArray",
        pairs: "pa.LargeStringArray | None",
        encoded: Encoded,
    ) -> "dict[str, NDArray[Any] | Ragged]":
        """Return these columns of some documents."""
        offsets, _ = _buffers(texts)
        nbytes = np.diff(offsets).astype("<u8")
        found: dict[str, NDArray[Any] | Ragged] = {
            TEXT_NBYTES: nbytes.view(np.uint8).reshape(-1, 8)
        }
        if encoded.pair_ids is not None and encoded.pair_counts is not None:
            stored = np.dtype(self.dtype).newbyteorder("<")
            check_ids(encoded.pair_ids, stored, PAIR_TOKENS)
            found[PAIR_TOKENS] = Ragged(encoded.pair_ids.astype(stored), encoded.pair_counts)
        if self.dedup == "exact":
            found[DIGEST] = digests(texts, pairs)
        if self.dedup == "minhash":
            found[SIGNATURE] = signatures(texts, pairs)
        return found


def digests(
    texts: "pa.LargeStringArray", pairs: "pa.LargeStringArray | None" = None
) -> "NDArray[np.uint8]":
    """Return what tells different documents apart.

    Returns:
        [N, 16] uint8: BLAKE2b-128 of each text's UTF-8; with pairs, of the digests of both.

    Source:
        BLAKE2b: RFC 7693.
    """
    found = _digests_of(texts)
    if pairs is not None:
        second = _digests_of(pairs)
        found = [_blake2b(one + other) for one, other in zip(found, second, strict=True)]
    return np.frombuffer(b"".join(found), np.uint8).reshape(-1, DIGEST_NBYTES)


def _digests_of(texts: "pa.LargeStringArray") -> list[bytes]:
    offsets, data = _buffers(texts)
    bounds = offsets.tolist()
    return [_blake2b(data[bounds[i] : bounds[i + 1]]) for i in range(len(texts))]


def _blake2b(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_NBYTES, usedforsecurity=False).digest()


def _buffers(texts: "pa.LargeStringArray") -> "tuple[NDArray[np.int64], memoryview]":
    """Return where each text begins and the last ends, and the bytes that they lie in."""
    _, offsets, data = texts.buffers()
    if not len(texts):
        return np.zeros(1, np.int64), memoryview(b"")
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return bounds, memoryview(data if data is not None else b"")
