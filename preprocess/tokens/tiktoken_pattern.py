"""Splitting patterns of tiktoken: those of the published encodings, and any other translated.

tiktoken reads a pattern by the Rust crates regex and fancy-regex, the tokenizers package by
Oniguruma. What the two read differently is translated, or refused: none of it passes unseen.
"""

import re
from typing import Final

from preprocess.errors import SourceError

END: Final = "<|endoftext|>"
_PROMPT: Final = "<|endofprompt|>"

_GPT2: Final = (
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
)
GPT2_RELEASE: Final = (
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
)
"""What `pre_tokenizers.ByteLevel` splits at by itself; it makes the same pieces as `_GPT2`."""

_CL100K: Final = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
_O200K: Final = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"""
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
    r"""|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"""
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
    r"""|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)

PATTERNS: Final = {
    "gpt2": _GPT2,
    "r50k_base": _GPT2,
    "p50k_base": _GPT2,
    "cl100k_base": _CL100K,
    "o200k_base": _O200K,
}
"""Splitting patterns by the name of the encoding.

Source:
    `tiktoken_ext/openai_public.py` of tiktoken 0.14, as are the digests and special tokens below.
"""

SPECIALS: Final[dict[str, dict[str, int]]] = {
    "r50k_base": {END: 50_256},
    "p50k_base": {END: 50_256},
    "cl100k_base": {
        END: 100_257,
        "<|fim_prefix|>": 100_258,
        "<|fim_middle|>": 100_259,
        "<|fim_suffix|>": 100_260,
        _PROMPT: 100_276,
    },
    "o200k_base": {END: 199_999, _PROMPT: 200_018},
}
DIGESTS: Final = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": "r50k_base",
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": "p50k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": "cl100k_base",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": "o200k_base",
}

# The parts of a pattern that are read as a whole: an escape, a class, the head of a group with
# flags, or one other character; then a count with what follows it.
_ESCAPE: Final = r"\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|x[0-9A-Fa-f]{2}|.)"
_ATOM: Final = re.compile(
    rf"({_ESCAPE}|\[\^?\]?(?:{_ESCAPE}|\[[^\]]*\]|[^\]\\[])*\]|\(\?[a-zA-Z-]+[:)]|.)"
    r"(\{[0-9]*,?[0-9]*\}[+?])?",
    re.DOTALL,
)
_POSIX: Final = "Al(?:num|pha)|Blank|Cntrl|Digit|Graph|Lower|Print|Punct|Space|Upper|XDigit|Word"
_SAME_ESCAPE: Final = re.compile(
    rf"\\(?:[pP]\{{(?!(?i:{_POSIX})\}})\w+\}}|x\{{\w+\}}|x[0-7]\w|[sSdDrntfvAz]|[^a-zA-Z0-9])"
)
"""Escapes that match the same in both; `\\w`, `\\b` and bytes, for some, do not."""

_SAME_CASES: Final = re.compile(r"(?:[a-zA-Z](?!\[)|['|]|\[[a-zA-Z]+\](?![a-zA-Z\[]))*\)")
_LIGATURES: Final = re.compile("ss|st|f[fil]", re.IGNORECASE)
"""What may stand in `(?i:...)`: Oniguruma takes one ligature for two letters, regex does not."""


def translate_pattern(given: str) -> str:
    """Give a splitting pattern in the words of the tokenizers package.

    Args:
        given: Name of a published encoding, or a regular expression as tiktoken takes it.

    Returns:
        `GPT2_RELEASE` for all that is written for GPT-2.

    Raises:
        SourceError: It is neither, or cannot be translated.
    """
    pattern = PATTERNS.get(given, given)
    if pattern in {_GPT2, GPT2_RELEASE}:
        return GPT2_RELEASE
    if re.fullmatch(r"\w*", pattern):
        raise SourceError(
            f"--tiktoken-pattern {given!r}: no published encoding of this name is known "
            f"({', '.join(PATTERNS)}), and it is no regular expression that splits text"
        )
    from tokenizers import Regex

    for one in pattern.split("(?i:")[1:]:
        same = _SAME_CASES.match(one)
        if same is None or _LIGATURES.search(same[0]):
            raise _refused(f"(?i:{one}", "what has two cases; write out the letters of both")
    short = re.sub(r"(?<!\\)((?:\\\\)*\\[pP])([A-Z])", r"\1{\2}", pattern)
    translated = _ATOM.sub(_translated, short)
    try:
        Regex(translated)
    except Exception as error:  # the package raises plain Exception
        raise SourceError(f"--tiktoken-pattern: {error}") from error
    return translated


def _translated(found: re.Match[str]) -> str:
    r"""Translate one part: `{1,3}+` would be a repeated repeat, `$` the end of any line.

    Source:
        Oniguruma's `doc/RE` (Ruby syntax), and the documentation of the Rust crates regex and
        fancy-regex; classes and escapes were compared over all of Unicode.
    """
    atom, times = found[1], found[2] or ""
    for escape in re.findall(_ESCAPE, atom, re.DOTALL):
        if not _SAME_ESCAPE.fullmatch(escape):
            raise _refused(escape, r"what it matches; write \p{...}, \s or \d, or the character")
    if atom.startswith("[") and (shown := re.search(r"\[:|~~|--", atom)):
        raise _refused(shown[0], "a class with it")
    if atom.startswith("(?") and atom not in {"(?i:", "(?-i:"}:
        raise _refused(atom, "flags other than (?i:...)")
    if atom == ")" and times.endswith("+"):
        raise _refused(f"){times}", "the +; write (?>...) around the group and its repeat")
    atom = {"^": r"\A", "$": r"\z"}.get(atom, atom)
    if times.endswith("+"):
        return f"(?>{atom}{times[:-1]})"
    # Lazy or not, a count of one number is that number; to Oniguruma it would be optional.
    return atom + (times if "," in times else times.rstrip("?"))


def _refused(part: str, what: str) -> SourceError:
    return SourceError(
        f"--tiktoken-pattern: {part!r}: tiktoken and the tokenizers package differ in {what}"
    )
