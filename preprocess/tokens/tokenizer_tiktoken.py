"""A tiktoken file, lines of `base64 rank`, becomes a tokenizer as transformers loads it.

Such a file holds neither the splitting pattern nor the special tokens. Those of the published
encodings are known by the file's SHA-256; for any other file the pattern is named by the user.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from preprocess.errors import SourceError
from preprocess.tokens.tiktoken_pattern import (
    DIGESTS,
    END,
    GPT2_RELEASE,
    PATTERNS,
    SPECIALS,
    translate_pattern,
)

_LINE: Final = re.compile(
    rb"((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?) ([0-9]{1,9})"
)
_HEAD_NBYTES: Final = 1 << 14

_PRINTED: Final = (*range(33, 127), *range(161, 173), *range(174, 256))
_LETTERS: Final = {byte: chr(byte) for byte in _PRINTED} | {
    byte: chr(256 + index) for index, byte in enumerate(sorted({*range(256)} - {*_PRINTED}))
}
"""How byte-level BPE spells bytes. Source: the release of GPT-2, `bytes_to_unicode`."""


class Readable(Protocol):
    """What the bytes of a file come from: a path, or something that makes them."""

    def read_bytes(self) -> bytes:
        """Return all bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiktokenFile:
    """A tiktoken file, with what it does not say.

    Attributes:
        path: The file.
        pattern: Name of a published encoding whose splitting pattern it has, or a regular
            expression as tiktoken takes it; None where the file itself is a published one.
        eos: Text that ends documents; it becomes a special token behind the last one unless the
            vocabulary has it.
    """

    path: str
    pattern: str | None = None
    eos: str | None = None

    def __str__(self) -> str:
        return self.path


class _Encoding(NamedTuple):
    """Tokens by rank, pattern in the words of the tokenizers package, special tokens."""

    ranks: dict[bytes, int]
    pattern: str
    known: dict[str, int]
    added: str | None


class _Converted(NamedTuple):
    """What the tokenizers package encodes with, and what transformers is told besides."""

    tokenizer: Any
    settings: dict[str, Any]


def name_tokenizer(tokenizer: str, pattern: str | None, eos: str | None) -> str | TiktokenFile:
    """Give what the options name: a tiktoken file with what it lacks, or any other tokenizer."""
    if pattern is None and not is_tiktoken(Path(tokenizer).expanduser()):
        return tokenizer
    return TiktokenFile(path=tokenizer, pattern=pattern, eos=eos or None)


def is_tiktoken(path: Path) -> bool:
    """Say whether a path is a file that begins as a tiktoken file does, whatever its name."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.read(_HEAD_NBYTES).splitlines()[:2]
    return any(map(_LINE.fullmatch, first))


def digest_tiktoken(file: TiktokenFile) -> str:
    """Check a tiktoken file and return the digest of all that makes the tokenizer.

    Raises:
        SourceError: The file is damaged, or its pattern is not known or cannot be used.
    """
    sha256 = _digest(file, Path(file.path).read_bytes())
    _convert(file, sha256)  # kept until it is loaded
    return sha256


def copy_tiktoken(file: TiktokenFile, sha256: str) -> dict[str, Readable]:
    """Give the files of a folder that transformers loads as this tokenizer, the original too."""
    made = {name: _Made(name, file, sha256) for name in ("tokenizer.json", "tokenizer_config.json")}
    return {**made, "original.tiktoken": Path(file.path)}


def load_tiktoken(file: TiktokenFile, sha256: str) -> Any:
    """Load a tiktoken file as a tokenizer of transformers.

    Args:
        file: What to load.
        sha256: What `digest_tiktoken` gave.

    Raises:
        SourceError: The file is damaged or was changed, or its pattern cannot be used.
    """
    from transformers import PreTrainedTokenizerFast

    converted = _convert(file, sha256)
    file_class: Any = PreTrainedTokenizerFast  # it takes a copy of the tokenizer
    return file_class(tokenizer_object=converted.tokenizer, **converted.settings)


@dataclass(frozen=True, slots=True)
class _Made:
    """One file of the converted tokenizer."""

    name: str
    file: TiktokenFile
    sha256: str

    def read_bytes(self) -> bytes:
        """Return all bytes."""
        converted = _convert(self.file, self.sha256)
        if self.name == "tokenizer.json":
            return str(converted.tokenizer.to_str()).encode()
        named = {"tokenizer_class": "PreTrainedTokenizerFast", **converted.settings}
        return json.dumps(named, indent=2, ensure_ascii=False).encode()


@lru_cache(maxsize=1)
def _convert(file: TiktokenFile, sha256: str) -> _Converted:
    """Convert once for loading and for copying; the digest says that the file is still the same."""
    data = Path(file.path).read_bytes()
    if _digest(file, data) != sha256:
        raise SourceError(f"{file}: changed while it was read; run the command again")
    encoding = _read_encoding(file, data)
    settings: dict[str, Any] = {"clean_up_tokenization_spaces": False}
    if END in encoding.known:
        settings |= {"eos_token": END, "bos_token": END}
    elif encoding.added:
        settings |= {"eos_token": encoding.added}
    return _Converted(_build(encoding), settings)


def _digest(file: TiktokenFile, data: bytes) -> str:
    given = json.dumps([file.pattern, file.eos])
    return hashlib.sha256(f"tiktoken {len(given)} {given}".encode() + data).hexdigest()


def _read_encoding(file: TiktokenFile, data: bytes) -> _Encoding:
    name = DIGESTS.get(hashlib.sha256(data).hexdigest())
    known = SPECIALS[name] if name else {}
    ranks = _read_ranks(file.path, data, {*known.values()})
    if name is None and file.pattern is None:
        raise SourceError(
            f"{file}: a tiktoken file without its splitting pattern, and none of the published "
            f"ones: give --tiktoken-pattern one of {', '.join(PATTERNS)}, or a regular expression"
        )
    if name and file.pattern is not None:
        raise SourceError(
            f"{file}: this is {name}, whose pattern is known; leave --tiktoken-pattern out"
        )
    pattern = translate_pattern(name or file.pattern or "")
    own = file.eos is None or file.eos in known or _has_token(ranks, file.eos, file)
    return _Encoding(ranks, pattern, known, None if own else file.eos)


def _has_token(ranks: dict[bytes, int], eos: str, file: TiktokenFile) -> bool:
    """Say whether a text is a token of the vocabulary; refuse what cannot be told from one."""
    try:
        token = eos.encode()
    except UnicodeEncodeError as error:
        raise SourceError(f"{file}: --eos {eos!r} is no text") from error
    if token in ranks and _spell(token) == eos:
        return True
    own = {letter: byte for byte, letter in _LETTERS.items()}
    spelled = bytes(own[letter] for letter in eos) if own.keys() >= {*eos} else b""
    if token in ranks or spelled in ranks:
        raise SourceError(
            f"{file}: --eos {eos!r} is a piece of ordinary text in this vocabulary; name a text "
            "that it does not have"
        )
    return False


def _read_ranks(path: str, data: bytes, taken: set[int]) -> dict[bytes, int]:
    """Read the tokens in the order of their ranks; `taken` are ids that are no ranks."""
    lines = data.splitlines()
    count = len(lines)
    last = next(
        number
        for number in range(count, count + len(taken) + 1)
        if number - sum(one < number for one in taken) == count
    )
    ranks: dict[bytes, int] = {}
    places: dict[int, int] = {}
    for number, line in enumerate(lines, 1):
        found = _LINE.fullmatch(line)
        token = base64.b64decode(found[1]) if found else b""
        if not found or not token:
            raise SourceError(
                f"{path}: line {number}: expected base64 and a rank, not {line[:40]!r}"
            )
        rank = int(found[2])
        if token in ranks:
            raise SourceError(f"{path}: line {number}: token is on line {places[ranks[token]]} too")
        if rank in places:
            raise SourceError(f"{path}: line {number}: rank {rank} is on line {places[rank]} too")
        if rank >= last or rank in taken:
            raise SourceError(
                f"{path}: line {number}: rank {rank} of {count:,} tokens: expected each of "
                f"0..{last - 1} once"
            )
        ranks[token] = rank
        places[rank] = number
    absent = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if absent:
        raise SourceError(
            f"{path}: a tiktoken file without a token for byte 0x{absent[0]:02X} ({len(absent)} of "
            "256 bytes are absent), so that text would be lost; take the whole file, or convert it "
            "once with transformers to a tokenizer.json that says what becomes of such text"
        )
    return dict(sorted(ranks.items(), key=lambda pair: pair[1]))


def _spell(token: bytes) -> str:
    return "".join(map(_LETTERS.__getitem__, token))


def _build(encoding: _Encoding) -> Any:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors

    ranks, known = encoding.ranks, encoding.known
    spelled = {rank: _spell(token) for token, rank in ranks.items()}
    merges = [(spelled[left], spelled[right]) for left, right in _halves(ranks)]
    vocabulary = {text: rank for rank, text in spelled.items()}
    # Ids of special tokens leave gaps, which only the vocabulary can hold, and not every engine: so
    # they are filled. No published pattern makes a piece of the text of such a token, and text that
    # is no piece cannot become one by way of the vocabulary.
    vocabulary |= known
    gaps = {*range(max(vocabulary.values()))} - {*vocabulary.values()}
    vocabulary |= {f"<|reserved_{number}|>": number for number in gaps}
    model = models.BPE(vocabulary, merges, ignore_merges=True)
    tokenizer: Any = tokenizers.Tokenizer(model)
    whole: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if encoding.pattern != GPT2_RELEASE:
        split = pre_tokenizers.Split(tokenizers.Regex(encoding.pattern), "isolated")
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        whole = pre_tokenizers.Sequence([split, plain])
    tokenizer.pre_tokenizer = whole
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    texts = [*known, *([encoding.added] if encoding.added else [])]
    specials = [tokenizers.AddedToken(text, normalized=False, special=True) for text in texts]
    tokenizer.add_special_tokens(specials)
    return tokenizer


def _halves(ranks: dict[bytes, int]) -> Iterator[tuple[int, int]]:
    """Yield the two tokens that each token is merged from, in the order of the ranks.

    tiktoken merges the leftmost neighbours that make the token of lowest rank. Before two of them
    become a token, nothing was merged across its ends, so within them all went as it goes for the
    token alone: only the last two parts of the token alone can ever be merged to it. A token that
    is not reached so is taken only where it is a whole piece of the split text.
    """
    never, rank_of = 1 + max(ranks.values()), ranks.get
    for token in ranks:
        parts = [token[at : at + 1] for at in range(len(token))]
        joint = [rank_of(token[at : at + 2], never) for at in range(len(token) - 1)]
        while len(parts) > 2 and (lowest := min(joint)) != never:
            at = joint.index(lowest)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del joint[at]
            if at:
                joint[at - 1] = rank_of(parts[at - 1] + parts[at], never)
            if at < len(joint):
                joint[at] = rank_of(parts[at] + parts[at + 1], never)
        if len(parts) == 2:
            yield ranks[parts[0]], ranks[parts[1]]
