"""Text that looks like a special token: found in documents, and encoded as any other text."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from preprocess.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


def contains_any(texts: "pa.LargeStringArray", needles: Iterable[str]) -> "NDArray[np.bool_]":
    """Say which texts hold at least one of some strings, letter by letter.

    Args:
        texts: [N] strings without nulls.
        needles: At least one string.

    Returns:
        [N] bool, its own memory.
    """
    import pyarrow.compute as pc

    # RE2 quotes by a backslash before punctuation; other characters stand for themselves.
    pattern = "|".join(
        "".join(f"\\{c}" if c.isascii() and not c.isalnum() and c != "_" else c for c in needle)
        for needle in needles
    )
    found = pc.match_substring_regex(texts, pattern)
    return np.array(found.to_numpy(zero_copy_only=False), np.bool_)


def speak_plainly(
    backend: Any, cleaned: str, special_ids: Mapping[str, int], unknown: int | None
) -> None:
    """Have the texts of special tokens encoded as any other text.

    Args:
        backend: The `tokenizers.Tokenizer`, changed in place.
        cleaned: The same as JSON.
        special_ids: Text and id of the special tokens.
        unknown: The id of the unknown token: it stands for no structure, a text may well give it.

    Raises:
        SourceError: A special token stays within a text's reach.
    """
    from tokenizers import Tokenizer

    backend.encode_special_tokens = True
    if not _leaking(backend, special_ids, unknown):
        return
    # Some models hold the special texts among their ordinary pieces (</s> of Unigram), so that a
    # document could still write control ids: such pieces are made unreachable.
    model = _without_pieces(json.loads(cleaned)["model"], special_ids)
    backend.model = Tokenizer.from_str(json.dumps({"version": "1.0", "model": model})).model
    if leaking := _leaking(backend, special_ids, unknown):
        raise SourceError(
            f"tokenizer: the text {leaking[0]!r} becomes a special token even when special tokens "
            "are read as text; use --specials error or --specials parse"
        )


def _leaking(backend: Any, special_ids: Mapping[str, int], unknown: int | None) -> list[str]:
    return [
        text
        for text, number in special_ids.items()
        if number != unknown
        and any(
            number in backend.encode(probe, add_special_tokens=False).ids
            for probe in (text, f" {text} ", f"a{text}b")
        )
    ]


def _without_pieces(model: dict[str, Any], special_ids: Mapping[str, int]) -> dict[str, Any]:
    vocab = model["vocab"]
    if isinstance(vocab, list):
        # Unigram: an id is a place in the list. The empty piece is never met on the way through a
        # text; the score stays, because the least one sets the price of unknown characters.
        pieces = [["" if piece in special_ids else piece, score] for piece, score in vocab]
        return model | {"vocab": pieces}
    unreachable = set(special_ids) - {model.get("unk_token")}
    return model | {
        "vocab": {piece: number for piece, number in vocab.items() if piece not in unreachable}
    }
