"""Text that looks like a special token: found in documents, and encoded as any other text."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from preprocess.errors import SourceError
from preprocess.texts.arrays import truths_of

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


def contains_any(texts: "pa.LargeStringArray", needles: Iterable[str]) -> "NDArray[np.bool_]":
    """Say which texts hold at least one of some strings, letter by letter.

    Args:
        texts: [N] strings without nulls.
        needles: Strings, none of them empty.

    Returns:
        [N] bool, its own memory.
    """
    import pyarrow.compute as pc

    # Apart by their first character: RE2 leaps to the next place where a pattern can begin if there
    # is only one such character (13 GB/s a core; 0.65 where the alternatives share none).
    groups: dict[str, list[str]] = {}
    for needle in needles:
        groups.setdefault(needle[0], []).append(_quoted(needle))
    found = np.zeros(len(texts), np.bool_)
    for alternatives in groups.values():
        matches = pc.match_substring_regex(texts, "|".join(alternatives))
        found |= truths_of(matches)
    return found


def late_hits(
    texts: "pa.LargeStringArray",
    parsing: Any,
    special_ids: Mapping[str, int],
    unknown: tuple[str, int] | None,
) -> "NDArray[np.bool_]":
    """Say which texts hold special tokens, of a tokenizer that looks for them after normalizing.

    Args:
        texts: [N] strings without nulls.
        parsing: The `tokenizers.Tokenizer`, set to read special tokens as such.
        special_ids: Text and id of the special tokens.
        unknown: Text and id of the unknown token, which ordinary texts give as well.

    Returns:
        [N] bool.
    """
    import pyarrow as pa

    # Only the tokenizer can tell. Where the letters of special tokens stay in sight, most texts
    # need not be asked about.
    hits = np.ones(len(texts), np.bool_)
    letters = {text.replace("\u2581", " ").strip() for text in special_ids}
    in_sight = all(text and " " not in text for text in letters)
    if in_sight and _letters_survive(json.loads(parsing.to_str())["normalizer"]):
        hits = contains_any(texts, letters)
    asked = texts.filter(pa.array(hits)).to_pylist()
    special = set(special_ids.values()) - {unknown[1] if unknown else None}
    encodings = parsing.encode_batch_fast(asked, add_special_tokens=False)
    hits[hits] = [not special.isdisjoint(one.ids) for one in encodings]
    if unknown is not None and unknown[0] in special_ids:
        hits |= contains_any(texts, (unknown[0],))
    return hits


def _letters_survive(normalizer: Mapping[str, Any]) -> bool:
    """Say whether a normalizer changes nothing but spaces."""
    kind = normalizer["type"]
    if kind == "Sequence":
        return all(_letters_survive(one) for one in normalizer["normalizers"])
    return bool(kind == "Prepend" or normalizer.get("pattern") == {"String": " "})


def _quoted(text: str) -> str:
    """Quote for RE2: a backslash before punctuation; other characters stand for themselves."""
    return "".join(f"\\{c}" if c.isascii() and not c.isalnum() and c != "_" else c for c in text)


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
