"""Texts encoded with offsets, in which some control tokens are quoted: mere text.

A tokenizer parts a text at its added tokens and encodes what lies between by itself. So a section
that holds a quoted token is encoded by a tokenizer that has no added tokens, behind one mark that
stands for the added token before it: a section at the beginning of a text may have a space put
before it, others not.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.tokens.chat_marks import Span

# Noncharacters never are in a text that is interchanged; these two stand for a quoted character,
# and for an added token.
# Source: The Unicode Standard, 23.7 Noncharacters.
_FILLER: Final = "\ufdd0"
_MARK: Final = "\ufdd1"


class SectionEncoder:
    """Encodes single texts with offsets; safe to be used by several threads.

    Attributes:
        added: Ids of the added tokens by their text, the unknown token left out.
        unknown_id: The id of what the model does not know, None where it has none.
    """

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers import AddedToken, Tokenizer

        described = json.loads(tokenizer.backend_tokenizer.to_str())
        described |= {"padding": None, "truncation": None, "post_processor": None}
        self._parsing: Any = Tokenizer.from_str(json.dumps(described))
        self.unknown_id = _unknown_id(described, self._parsing)
        self.added: dict[str, int] = {
            token.content: number
            for number, token in self._parsing.get_added_tokens_decoder().items()
            if number != self.unknown_id
        }
        if described["model"]["type"] == "Unigram":
            # Its pieces hold the control tokens, which a text could so still give. The empty piece
            # is never met on the way through a text.
            described["model"]["vocab"] = [
                ["" if piece in self.added else piece, score]
                for piece, score in described["model"]["vocab"]
            ]
        self._plain: Any = Tokenizer.from_str(json.dumps({**described, "added_tokens": []}))
        self._plain.add_special_tokens([AddedToken(_MARK, special=True, normalized=False)])

    def encode(
        self, text: str, quoted: Sequence[Span]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Encode one text, adding no special tokens.

        Args:
            text: The text.
            quoted: [begin, end) characters of added tokens that are mere text, in order.

        Returns:
            [T] ids, and [T, 2] characters where each token begins and ends.

        Raises:
            ValueError: The model gives a control token even for its text, or the text holds one of
                the noncharacters that are used here.
        """
        if not quoted:
            whole = self._parsing.encode(text, add_special_tokens=False)
            return np.array(whole.ids, np.uint32), _offsets(whole.offsets)
        if _FILLER in text or _MARK in text:
            raise ValueError("the chat holds the noncharacters U+FDD0 or U+FDD1")
        filled = text
        for begin, end in quoted:
            filled = filled[:begin] + _FILLER * (end - begin) + filled[end:]
        whole = self._parsing.encode(filled, add_special_tokens=False)
        ids: list[int] = []
        offsets: list[Span] = []
        for section in self._sections(filled, whole.ids, whole.offsets):
            begin, end, first, last = section
            if any(at < end and stop > begin for at, stop in quoted):
                section_ids, section_offsets = self._encode_plainly(text, begin, end)
                ids += section_ids
                offsets += section_offsets
            else:
                ids += whole.ids[first:last]
                offsets += whole.offsets[first:last]
        return np.array(ids, np.uint32), _offsets(offsets)

    def _sections(
        self, text: str, ids: Sequence[int], offsets: Sequence[Span]
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield characters and tokens of all sections: added tokens, and what lies between."""
        place, first = 0, 0
        for number, (begin, end) in enumerate(offsets):
            # A token may take white space beside it along.
            if (
                self.added.get(text[begin:end].strip(), self.added.get(text[begin:end]))
                != ids[number]
            ):
                continue
            yield place, begin, first, number
            yield begin, end, number, number + 1
            place, first = end, number + 1
        yield place, len(text), first, len(ids)

    def _encode_plainly(self, text: str, begin: int, end: int) -> tuple[list[int], list[Span]]:
        """Encode a section as if there were no added tokens."""
        mark = _MARK if begin else ""
        encoding = self._plain.encode(mark + text[begin:end], add_special_tokens=False)
        skipped = len(mark)
        ids: list[int] = encoding.ids[skipped:]
        control = set(self.added.values()).intersection(ids)
        if control:
            name = self._parsing.id_to_token(min(control))
            raise ValueError(f"{name} cannot be written as text: the tokenizer's model gives it")
        moved = begin - skipped
        return ids, [(at + moved, stop + moved) for at, stop in encoding.offsets[skipped:]]


def _offsets(pairs: Sequence[Span]) -> NDArray[np.int64]:
    return np.array(pairs, np.int64).reshape(-1, 2)


def _unknown_id(described: dict[str, Any], tokenizer: Any) -> int | None:
    model = described["model"]
    number: int | None = model.get("unk_id")
    if number is None and model.get("unk_token") is not None:
        number = tokenizer.token_to_id(model["unk_token"])
    return number
