"""The tokenizer: loaded by transformers, and described. Its ids are every engine's reference."""

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from preprocess.errors import SourceError
from preprocess.tokens.engine_specials import contains_any, late_hits, speak_plainly
from preprocess.tokens.loading import Given, load_here, load_pretrained
from preprocess.tokens.options import Specials
from preprocess.tokens.tokenizer_source import TokenizerSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

_UINT16_LARGEST: Final = 65_535


class TextTokenizer:
    """A loaded tokenizer; encoding is safe from several threads.

    Args:
        source: Where its files are.
        specials: What text that looks like a special token becomes.
        given: What is known of it already; by default transformers loads it now.

    Attributes:
        source: What was loaded.
        specials: What text that looks like a special token becomes: `text` ordinary tokens, `parse`
            the special ids (as transformers does when nothing is said), `error` is refused by the
            caller, who asks `special_hits`; encoded all the same, it is as `text`.
        backend: The `tokenizers.Tokenizer`, padding and truncation off, set to `specials`.
        cleaned: The same as JSON, before `specials` and without the padding and truncation that a
            file may carry: what the engines load.
        largest_id: Over the vocabulary with all added tokens.
        dtype: The narrowest of uint16 and uint32 that holds `largest_id`.
        special_texts: The texts that are read as special tokens.
        unknown: Text and id of what the model gives for what it does not know, where it has such.
    """

    def __init__(
        self, source: TokenizerSource, *, specials: Specials = "text", given: Given | None = None
    ) -> None:
        self.source = source
        self.specials: Specials = specials
        self._given = given = load_here(source) if given is None else given
        self.cleaned: str = given.content
        self.backend: Any = _from_json(self.cleaned) if given.backend is None else given.backend
        self.largest_id: int = max(self.backend.get_vocab(with_added_tokens=True).values())
        self.dtype: Literal["uint16", "uint32"] = (
            "uint16" if self.largest_id <= _UINT16_LARGEST else "uint32"
        )
        added = self.backend.get_added_tokens_decoder()
        self.special_ids: dict[str, int] = {
            token.content: number for number, token in sorted(added.items()) if token.special
        }
        self.special_texts: tuple[str, ...] = tuple(self.special_ids)
        # A token that is looked for in the normalized text cannot be found in the text itself.
        self._late: bool = self.backend.normalizer is not None and any(
            token.special and token.normalized for token in added.values()
        )
        self.unknown: tuple[str, int] | None = self._unknown_of(json.loads(self.cleaned)["model"])
        if specials != "parse":
            unknown = self.unknown[1] if self.unknown else None
            speak_plainly(self.backend, self.cleaned, self.special_ids, unknown)

    @cached_property
    def pretrained(self) -> Any:
        """The transformers tokenizer: chat templates, names of the special tokens.

        Raises:
            SourceError: It cannot be loaded.
        """
        here = self._given.pretrained
        return load_pretrained(self.source) if here is None else here

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """What is put before one text where special tokens are added."""
        return self._around[0]

    @property
    def suffix_ids(self) -> tuple[int, ...]:
        """What is put after one text where special tokens are added."""
        return self._around[1]

    @property
    def eos_id(self) -> int | None:
        """End of a document; None where there is none."""
        return self._given.named().eos_id

    @property
    def bos_id(self) -> int | None:
        """Beginning of a document; None where there is none."""
        return self._given.named().bos_id

    @property
    def pad_id(self) -> int | None:
        """What rows are filled with; None where there is none."""
        return self._given.named().pad_id

    @property
    def unk_id(self) -> int | None:
        """What stands for the unknown; None where there is none."""
        return self._given.named().unk_id

    def id_of(self, token: str) -> int:
        """Give the id of one token by its text.

        Raises:
            SourceError: The vocabulary has no such token.
        """
        number: int | None = self.backend.token_to_id(token)
        if number is None:
            known = ", ".join(self.special_texts[:8]) or "none"
            raise SourceError(
                f"{token!r} is not a token of {self.source.path}; its special tokens: {known}"
            )
        return number

    def decode(self, ids: "Sequence[int] | NDArray[Any]") -> str:
        """Give the text of some ids, special tokens included."""
        text: str = self.backend.decode([int(one) for one in ids], skip_special_tokens=False)
        return text

    def special_hits(self, texts: "pa.LargeStringArray") -> "NDArray[np.bool_]":
        """Say which texts hold the text of a special token.

        Args:
            texts: [N] strings without nulls.

        Returns:
            [N] bool.
        """
        if not self.special_texts or not len(texts):
            return np.zeros(len(texts), np.bool_)
        if not self._late:
            return contains_any(texts, self.special_texts)
        return late_hits(texts, self._parsing, self.special_ids, self.unknown)

    @property
    def late(self) -> bool:
        """Whether some special tokens are looked for only after the text was normalized."""
        return self._late

    @cached_property
    def _parsing(self) -> Any:
        return _from_json(self.cleaned)

    @cached_property
    def _framing(self) -> Any:
        framing = _from_json(self._given.whole())
        framing.no_padding()
        framing.no_truncation()
        return framing

    def pair_frame(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Give what is put before, between and after two texts where special tokens are added.

        Raises:
            SourceError: The tokenizer does not put the first text before the second one.
        """
        encoding = self._framing.encode("a", "a", add_special_tokens=True)
        parts: tuple[list[int], ...] = ([], [], [])
        texts = [text for text in encoding.sequence_ids if text is not None]
        if texts != sorted(texts) or set(texts) != {0, 1}:
            raise SourceError(f"{self.source.path}: does not put a pair's first text first")
        reached = 0
        for number, text in zip(encoding.ids, encoding.sequence_ids, strict=True):
            if text is None:
                parts[reached].append(number)
            else:
                reached = text + 1
        return tuple(parts[0]), tuple(parts[1]), tuple(parts[2])

    def _unknown_of(self, model: dict[str, Any]) -> tuple[str, int] | None:
        if model.get("unk_token") is not None:
            text: str = model["unk_token"]
            return text, self.id_of(text)
        number: int | None = model.get("unk_id")
        return None if number is None else (model["vocab"][number][0], number)

    @cached_property
    def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        plain: list[int] = self._framing.encode("a", add_special_tokens=False).ids
        whole: list[int] = self._framing.encode("a", add_special_tokens=True).ids
        for start in range(len(whole) - len(plain) + 1):
            if whole[start : start + len(plain)] == plain:
                return tuple(whole[:start]), tuple(whole[start + len(plain) :])
        raise SourceError(
            f"{self.source.path}: with special tokens, a text is encoded to other ids than without"
        )


def _from_json(content: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(content)
