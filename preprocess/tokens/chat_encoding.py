"""Chats become ids, and one bit for each: whether the model learns to write it.

A chat is encoded as a whole, so its ids are those of its text. Which token begins a span is then
found without character offsets, which fast engines do not give: control tokens part a text into
sections that know nothing of each other, so the ids of a section's beginning, encoded alone, must
stand right behind the control token; if they do not, a token reaches over the edge of the span.
Those chats, and those that quote control tokens, go through `tokenizers` itself, with offsets.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from preprocess.tokens.chat import RenderedChat, any_of
from preprocess.tokens.chat_marks import ChatError, Span
from preprocess.tokens.chat_quotes import SectionEncoder
from preprocess.tokens.runs import copy_runs, starts_of

Encode = Callable[[list[str]], tuple[NDArray[np.uint32], NDArray[np.int64]]]
"""Texts to ids back to back and their number for each text: no special tokens are added, and the
texts of special tokens in the texts become their ids."""


_Result = tuple[NDArray[np.uint32], NDArray[np.bool_]] | ChatError


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedChats:
    """Ids of chats.

    Attributes:
        ids: [T] uint32, chats back to back.
        counts: [N] int64 ids of each.
        mask: [T] bool, true where the model learns.
        documents: [N] int64 which of the given chats each is, rising.
        refused: Those that are missing -> why, rising.
    """

    ids: NDArray[np.uint32]
    counts: NDArray[np.int64]
    mask: NDArray[np.bool_]
    documents: NDArray[np.int64]
    refused: dict[int, str]


class ChatEncoder:
    """Encodes chats for one tokenizer; safe to be used by several threads if `encode` is.

    Text that looks like a control token and came with a message is encoded as ordinary text
    together with what is around it, up to the next control tokens of the template on both sides.
    All other sections have the ids that they have in the whole text.
    """

    def __init__(self, tokenizer: Any, encode: Encode) -> None:
        """Prepare.

        Args:
            tokenizer: A fast tokenizer of transformers.
            encode: The engine; where it gives other ids for control tokens than the tokenizer, or
                takes them for text, every chat is encoded by `tokenizers`: right, but slow.
        """
        self._encode = encode
        self._sections = SectionEncoder(tokenizer)
        added = self._sections.added
        self._added_ids = np.array(sorted(added.values()), np.uint32)
        self._id_of = added
        self._pattern = any_of(set(added))
        self._unknown = self._sections.unknown_id

    def encode(self, chats: Sequence[RenderedChat | ChatError]) -> EncodedChats:
        """Encode chats; errors among them are handed on.

        Args:
            chats: From `render_chats`.

        Returns:
            Ids and masks. A mask that would be all 0 or all 1 is an error of its chat.
        """
        results: dict[int, _Result] = {}
        plain: dict[int, RenderedChat] = {}
        for number, chat in enumerate(chats):
            if isinstance(chat, ChatError):
                results[number] = chat
            elif chat.quoted:
                results[number] = self._with_offsets(chat)
            else:
                plain[number] = chat
        results |= self._with_engine(plain)
        kept = []
        refused: dict[int, str] = {}
        for number in range(len(chats)):
            result = results[number]
            if isinstance(result, ChatError):
                refused[number] = str(result)
            elif result[1].all() == result[1].any():
                which = "every" if len(result[1]) and result[1].all() else "no"
                refused[number] = f"{which} token of the chat would be learned"
            else:
                kept.append((number, *result))
        return EncodedChats(
            ids=np.concatenate([np.zeros(0, np.uint32), *(ids for _, ids, _ in kept)]),
            counts=np.array([len(ids) for _, ids, _ in kept], np.int64),
            mask=np.concatenate([np.zeros(0, np.bool_), *(mask for _, _, mask in kept)]),
            documents=np.array([number for number, _, _ in kept], np.int64),
            refused=refused,
        )

    def _with_engine(self, chats: dict[int, RenderedChat]) -> dict[int, _Result]:
        texts = _encoded(self._encode, [chat.text for chat in chats.values()])
        plans = [self._plan(chat, ids) for chat, ids in zip(chats.values(), texts, strict=True)]
        edges = [edge for plan in plans for edge in plan or ()]
        wanted = list(dict.fromkeys(edge.probe for edge in edges if edge.probe))
        probes = dict(zip(wanted, _encoded(self._encode, wanted), strict=True))
        results: dict[int, _Result] = {}
        for (number, chat), ids, plan in zip(chats.items(), texts, plans, strict=True):
            mask = None if plan is None else self._mask(ids, plan, probes)
            results[number] = self._with_offsets(chat) if mask is None else (ids, mask)
        return results

    def _plan(self, chat: RenderedChat, ids: NDArray[np.uint32]) -> "list[_Edge] | None":
        """Say for each edge of the spans which control token it follows, and by what text."""
        found = list(self._pattern.finditer(chat.text))
        places = np.flatnonzero(np.isin(ids, self._added_ids))
        if ids[places].tolist() != [self._id_of[match[0]] for match in found]:
            return None
        token_places: list[int] = places.tolist()
        begins = [match.start() for match in found]
        edges = []
        for edge in (edge for span in chat.learned for edge in span):
            before = bisect_right(begins, edge) - 1
            if edge == len(chat.text):
                edges.append(_Edge(len(ids), ""))
            elif before >= 0 and begins[before] == edge:
                edges.append(_Edge(token_places[before], ""))
            elif before >= 0 and found[before].end() > edge:
                return None
            elif before >= 0 and found[before].end() == edge:
                edges.append(_Edge(token_places[before] + 1, ""))
            else:
                begin = begins[before] if before >= 0 else 0
                first = token_places[before] if before >= 0 else 0
                edges.append(_Edge(first, chat.text[begin:edge]))
        return edges

    def _mask(
        self,
        ids: NDArray[np.uint32],
        edges: "Iterable[_Edge]",
        probes: dict[str, NDArray[np.uint32]],
    ) -> NDArray[np.bool_] | None:
        """Find the tokens where the spans begin and end; None where a token reaches over."""
        places = []
        for edge in edges:
            place = edge.place
            if edge.probe:
                probe = probes[edge.probe]
                # What is unknown has one id whatever its length: it may reach over the edge.
                if len(probe) and int(probe[-1]) == self._unknown:
                    return None
                place += len(probe)
                if not np.array_equal(ids[edge.place : place], probe):
                    return None
            places.append(place)
        mask = np.zeros(len(ids), np.bool_)
        for begin, end in zip(places[::2], places[1::2], strict=True):
            mask[begin:end] = True
        return mask

    def _with_offsets(self, chat: RenderedChat) -> _Result:
        """Encode with offsets; a token that reaches over the edge of a span is learned."""
        try:
            ids, offsets = self._sections.encode(chat.text, chat.quoted)
        except ValueError as error:
            return ChatError(str(error))
        return ids, _overlaps(offsets, chat.learned)


@dataclass(frozen=True, slots=True)
class _Edge:
    """Where a span begins or ends: behind the ids of `probe`, which begin at token `place`."""

    place: int
    probe: str


def pack_bits(
    mask: NDArray[np.bool_], counts: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pack masks into bits, each document from a byte of its own on.

    Args:
        mask: [T] one value a token, documents back to back.
        counts: [N] tokens of each document.

    Returns:
        [sum of ceil(n / 8)] uint8, the first token in the lowest bit, unused bits 0; and [N] int64
        bytes of each document.
    """
    nbytes = -(-counts // 8)
    starts = starts_of(nbytes)
    padded = np.zeros(8 * int(starts[-1]), np.bool_)
    copy_runs(padded, 8 * starts[:-1], mask, starts_of(counts)[:-1], counts)
    return np.packbits(padded, bitorder="little"), nbytes


def _encoded(encode: Encode, texts: list[str]) -> list[NDArray[np.uint32]]:
    """Encode texts, one array each."""
    if not texts:
        return []
    ids, counts = encode(texts)
    if len(counts) != len(texts) or int(counts.sum()) != len(ids):
        raise ValueError(
            f"the engine gave {len(ids)} ids and {len(counts)} counts for {len(texts)} texts"
        )
    return np.split(ids, np.cumsum(counts)[:-1])


def _overlaps(offsets: NDArray[np.int64], spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Say which tokens share a character with a span."""
    mask = np.zeros(len(offsets), np.bool_)
    for begin, end in spans:
        mask |= (offsets[:, 0] < end) & (offsets[:, 1] > begin)
    return mask
