"""Items of text -> rows of samples: read, choose the split's documents, encode, audit, lay out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.recipe import Ragged, Rows
from preprocess.texts.arrays import make_texts
from preprocess.texts.lines import no_documents
from preprocess.texts.options import TextOptions
from preprocess.texts.read import read_documents
from preprocess.tokens.batch import Batch, Piece, gather_pieces, sizes_of
from preprocess.tokens.chat import ChatTemplate, render_chats
from preprocess.tokens.chat_encoding import ChatEncoder, pack_bits
from preprocess.tokens.engine_check import audited, differing
from preprocess.tokens.engines import Engine, ReferenceEngine
from preprocess.tokens.first import FirstPass
from preprocess.tokens.layouts import AnyLayout, Encoded, LaidOut
from preprocess.tokens.runs import starts_of
from preprocess.tokens.tokenizer import TextTokenizer

if TYPE_CHECKING:
    import pyarrow as pa

    from preprocess.texts.documents import Documents

_TOGETHER: Final = 1 << 20
"""Bytes of text of small files that are encoded in one call."""

_BINS: Final = 42
"""Bins of the histogram of lengths: bin b counts documents of 2**(b - 1) to 2**b - 1 tokens."""


class Mismatch(Exception):  # noqa: N818
    """An engine's ids are not the reference's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMaker:
    """Makes samples of texts in one process; used by many threads.

    Attributes:
        text: How texts are read.
        tokenizer: Loaded.
        engine: Encodes.
        layout: What is stored of a document.
        bounds: First and end of the hashes that are of this split, of `whole`; None for all.
        whole: How many hashes there are.
        split_seed: Changes them.
        tells: Whether faults of the input are told: by one split of several that read it.
        chat: Renders texts that are messages; None where they are texts.
        first: What is kept of documents that are put in order afterwards; None where they are not.
    """

    text: TextOptions
    tokenizer: TextTokenizer
    engine: Engine
    layout: AnyLayout
    bounds: tuple[int, int] | None
    whole: int
    split_seed: int
    tells: bool
    chat: ChatTemplate | None = None
    first: FirstPass | None = None

    def samples(self, files: ItemFiles, items: Sequence[Item]) -> Iterator[Rows | SampleError]:
        """Yield the samples of the items, in order; see `preprocess.recipe.Maker`."""
        waiting: list[Piece] = []
        for item in items:
            held: Documents | None = None
            try:
                for documents in read_documents(files, item, self.text):
                    if held is not None:
                        yield from self._flushed(waiting)
                        yield self._rows([Piece(item.key, held)], more=True)
                    held = documents
            except SampleError as error:
                yield from self._flushed(waiting)
                yield error
                continue
            if held is not None:
                waiting.append(Piece(item.key, held))
            elif item.start == 0 and item.stop is None:
                waiting.append(Piece(item.key, no_documents(self.text), is_empty=True))
            if sum(piece.documents.texts.nbytes for piece in waiting) >= _TOGETHER:
                yield from self._flushed(waiting)
        yield from self._flushed(waiting)

    def made(self, piece: Piece) -> Rows:
        """Return the samples of documents that are there already."""
        return self._rows([piece], more=False)

    def _flushed(self, waiting: list[Piece]) -> Iterator[Rows]:
        if waiting:
            yield self._rows(waiting, more=False)
            waiting.clear()

    def _rows(self, pieces: Sequence[Piece], *, more: bool) -> Rows:
        """Encode some documents and lay them out."""
        told = [error for piece in pieces for error in piece.documents.errors]
        batch = self._chosen(gather_pieces(pieces), told)
        missing: list[SampleError] = []
        if self.chat is None:
            encoded, audit = self._encoded(batch.texts, batch.pairs, batch.places)
        else:
            encoded, audit, refused = self._encoded_chats(self.chat, batch.texts)
            missing += _named_errors(batch, refused)
            batch = batch.without(refused)
        laid_out = self.layout.lay_out(encoded)
        missing += _named_errors(batch, laid_out.refused)
        unknown = self.tokenizer.unknown
        tallies = tally(
            encoded,
            laid_out,
            int(sizes_of(batch.texts).sum()),
            None if unknown is None else unknown[1],
        )
        tallies["audited"] = (audit,)
        tallies["special_text"] = (batch.special_text,)
        tallies["empty_items"] = (sum(piece.is_empty for piece in pieces) if self.tells else 0,)
        arrays = _named(laid_out, batch)
        if self.first is not None:
            arrays.update(self.first.arrays(batch.texts, batch.pairs, encoded))
        return Rows(
            count=laid_out.count,
            arrays=arrays,
            skipped=(*(told if self.tells else ()), *missing),
            tallies=tallies,
            more=more,
        )

    def _chosen(self, batch: Batch, told: list[SampleError]) -> Batch:
        """Return the documents that are of this split and can be taken, and say why others not."""
        refused: dict[int, str] = {}
        sizes = sizes_of(batch.texts)
        for index in np.flatnonzero(sizes > self.text.max_document_nbytes).tolist():
            refused[index] = self.text.refusal_of(int(sizes[index]))
        hits = np.zeros(len(sizes), np.bool_)
        if self.tokenizer.specials != "parse":  # what looks like a special token is looked for
            hits = self.tokenizer.special_hits(batch.texts)
        if self.tokenizer.specials == "error":
            refused.update(dict.fromkeys(np.flatnonzero(hits).tolist(), _SPECIAL))
        if self.tells:  # names are not free
            told += _named_errors(batch, refused)
        kept = np.ones(len(sizes), np.bool_) if self.bounds is None else self._in_split(batch.keys)
        kept[list(refused)] = False
        return replace(batch.filtered(kept), special_text=int(hits[kept].sum()))

    def _in_split(self, keys: Sequence[bytes]) -> NDArray[np.bool_]:
        """Return which documents are of this split, by a stable hash of their keys."""
        from google_crc32c import extend

        seed = extend(0, str(self.split_seed).encode())
        hashes = np.fromiter((extend(seed, key) for key in keys), np.uint64, len(keys))
        # CRC is linear: near keys have near hashes until they are mixed.
        mixed = (hashes * np.uint64(0x9E3779B97F4A7C15)) ^ (hashes >> np.uint64(7))
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        part = (mixed >> np.uint64(40)) % np.uint64(self.whole)
        first, end = self.bounds or (0, self.whole)
        chosen: NDArray[np.bool_] = (part >= first) & (part < end)
        return chosen

    def _encoded(
        self,
        texts: "pa.LargeStringArray",
        pairs: "pa.LargeStringArray | None",
        places: NDArray[np.int64],
    ) -> tuple[Encoded, int]:
        """Return the ids, and how many documents the reference has encoded as well."""
        ids, counts, audit = self._audited(texts, places)
        if pairs is None:
            return Encoded(ids=ids, counts=counts), audit
        pair_ids, pair_counts, more = self._audited(pairs, places)
        found = Encoded(ids=ids, counts=counts, pair_ids=pair_ids, pair_counts=pair_counts)
        return found, audit + more

    def _audited(
        self, texts: "pa.LargeStringArray", places: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64], int]:
        ids, counts = self.engine.encode(texts)
        if len(counts) != len(texts) or int(counts.sum()) != len(ids):
            raise RuntimeError(f"{len(texts)} documents in, {len(counts)} out")
        if self.engine.name == ReferenceEngine.name or not len(texts):
            return ids, counts, 0
        positions = audited(places, seed=self.split_seed)
        if differing(ReferenceEngine(self.tokenizer), texts, (ids, counts), positions):
            raise Mismatch(self.engine.name)
        return ids, counts, len(positions)

    def _encoded_chats(
        self, chat: ChatTemplate, texts: "pa.LargeStringArray"
    ) -> tuple[Encoded, int, dict[int, str]]:
        """Return ids and masks, documents that the reference has encoded, and those refused."""
        audit = 0

        def encode(rendered: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
            nonlocal audit
            places = np.arange(len(rendered), dtype=np.int64)
            ids, counts, more = self._audited(make_texts(rendered), places)
            audit += more
            return ids, counts

        chats = list(render_chats(chat, texts.to_pylist()))
        found = ChatEncoder(self.tokenizer.pretrained, encode).encode(chats)
        bits, nbytes = pack_bits(found.mask, found.counts)
        encoded = Encoded(ids=found.ids, counts=found.counts, bits=bits, bit_counts=nbytes)
        return encoded, audit, found.refused


def tally(
    encoded: Encoded, laid_out: LaidOut, text_nbytes: int, unknown: int | None
) -> dict[str, tuple[int, ...]]:
    """Count documents and their tokens.

    Args:
        encoded: The documents.
        laid_out: Their samples.
        text_nbytes: Bytes of their texts.
        unknown: Id of what the tokenizer does not know.
    """
    lengths = encoded.counts
    bins = np.bincount(np.frexp(lengths.astype(np.float64))[1], minlength=1)[:_BINS]
    return {
        "documents": (len(lengths) - len(laid_out.refused),),
        "text_nbytes": (text_nbytes,),
        "learned": (0 if encoded.bits is None else int(np.bitwise_count(encoded.bits).sum()),),
        "tokens": (len(encoded.ids),),
        "cut": laid_out.cut,
        "lengths": tuple(bins.tolist()),
        "unknown": (0 if unknown is None else int((encoded.ids == unknown).sum()),),
    }


_SPECIAL: Final = "holds text that looks like a special token; --specials text or parse takes it"


def _named_errors(batch: Batch, refused: Mapping[int, str]) -> list[SampleError]:
    return [SampleError(batch.names[index], why) for index, why in sorted(refused.items())]


def _as_bytes(strings: "pa.LargeStringArray") -> list[bytes]:
    import pyarrow as pa

    return strings.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def _named(laid_out: LaidOut, batch: Batch) -> dict[str, Any]:
    """Return the samples' arrays, with what names and describes their documents."""
    arrays: dict[str, Any] = {**laid_out.arrays, "key": join_lines(batch.keys, laid_out)}
    if batch.metadata is not None:
        arrays["metadata"] = join_lines(_as_bytes(batch.metadata), laid_out)
    return arrays


def join_lines(lines: Sequence[bytes], laid_out: LaidOut) -> Ragged:
    """Return the lines of each sample's documents, NUL between them: no name, no JSON holds one."""
    chosen = [lines[index] for index in laid_out.documents.tolist()]
    if len(chosen) != laid_out.count or (laid_out.document_counts != 1).any():
        bounds = starts_of(laid_out.document_counts).tolist()
        chosen = [b"\0".join(chosen[first:end]) for first, end in pairwise(bounds)]
    counts = np.fromiter(map(len, chosen), np.int64, len(chosen))
    return Ragged(np.frombuffer(b"".join(chosen), np.uint8), counts)
