"""Texts on which tokenizers have been seen to differ, made in code and always the same."""

import hashlib
import unicodedata
from typing import TYPE_CHECKING, Final

from preprocess.texts.arrays import make_texts
from preprocess.tokens.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_SPACES: Final = (
    *(" ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\xa0", "\u1680", "\u180e"),
    *("\u2003", "\u200b", "\u2028", "\u2029", "\u202f", "\u2060", "\u3000", "\ufeff"),
)
_EMOJI: Final = (
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f44d\U0001f3fd",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7",
    "1\ufe0f\u20e3 \u2764\ufe0f \u2764",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
)
_WORDS: Final = (
    *(
        "I'm",
        "I'M",
        "don't",
        "don\u2019t",
        "'s",
        "'S",
        "'\u017f",
        "'ll've'd",
        "'LL'RE",
        "''s",
        "s'",
    ),
    *(
        "caf\xe9",
        "na\xefve",
        "\u0130stanbul",
        "\u0131",
        "Stra\xdfe",
        "STRA\u1e9eE",
        "\ufb01n",
        "\u212b",
    ),
    *("\u039f\u0394\u039f\u03a3", "\u1ec7\u1ed9\u01b0", "\ud55c\uad6d\uc5b4", "\u0915\u094d\u0937"),
    *(
        "\u0e01\u0e33",
        "\u0644\u0627",
        "\u05e9\u05b8\u05c1",
        "\u4e2d\u6587\u5b57",
        "\u30ab\u3099",
        "\U00020000",
    ),
    *("0", "12", "123", "1234", "1234567", "1,234.56", "1e-10", "0x1F", "\uff11\uff12", "\xb2\xbd"),
    *("\u0663\u0664", "\u2167", "a1b22", "v1.2.3", "_x_", "__init__", "snake_case", "CamelCase"),
    *(
        "...",
        "--",
        "\u2014",
        "\u2026",
        "?!",
        "://",
        "->",
        "\\n",
        "$",
        "\u20ac",
        "#@",
        "<|",
        "|>",
        "[",
        "]",
    ),
    *("\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\ue000", "\U000f0000", "\x00", "\x7f", "\x9f"),
    *("\u0301", "\u200d", "\ufe0f", "\u0345", "\U0001d400", "\u2581", "\u0120", "##a", "\u010a"),
)
_CODE: Final = (
    "def f(x):\n\tif x:\n        return  x\n\n\n\r\n# end\n",
    "for (int i=0;i<n;++i){a[i]+=b[i]*0.5f;} // \u00e9\r\n\r\n",
    '{"key": [1, 2.50, null], "u": "\\u00e9"}\n',
    "https://example.org/a%20b?x=1&y=[2]#z user.name+tag@example.org C:\\dir\\file",
    "| a | b |\n|---|:-:|\n| *x* | `y` |\n\n- [ ] z\n",
    "Hello, World! HELLO WORLD hello  world   hello    world",
)
# Long enough to pass any limit on a word or a splitting rule.
_LONG: Final = (
    *("a" * 100_000, "ab" * 10_000, " " * 20_000, "\n" * 10_000, " \n" * 5_000, "0" * 10_000),
    *(
        "\u4e2d" * 10_000,
        "\xe9" * 5_000,
        "'s" * 5_000,
        "=" * 10_000,
        "^" * 5_000,
        "\U0001f600" * 2_000,
    ),
    *(
        "e" + "\u0301" * 2_000,
        "A" * 5_000,
        "a " * 5_000,
        "\x00" * 1_000,
        "\u200b" * 1_000,
        ".a" * 3_000,
    ),
)
_FUZZED: Final = 300
_PIECES: Final = 1_000
_VARIED: Final = 32


def torture(tokenizer: TextTokenizer) -> "pa.LargeStringArray":
    """Give the hard texts, with those that belong to this tokenizer.

    Args:
        tokenizer: Its special and other added tokens and some of its vocabulary become texts.

    Returns:
        Some thousand strings, about 1.5 MB.
    """
    return make_texts([*_common(), *_own(tokenizer)])


def _common() -> "Iterator[str]":
    yield from ("", *_EMOJI, *_WORDS, *_CODE, *_LONG)
    for space in _SPACES:
        yield from (space, space * 2, space * 7, f"a{space}b", f"{space}a", f"a{space * 3}1 ")
    for number in (*range(32), *range(127, 160)):
        yield f"a{chr(number)}b {chr(number) * 3}"
    text = " ".join((*_WORDS, *_EMOJI))
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield unicodedata.normalize(form, text)
    # WordPiece gives up on words of more than max_input_chars_per_word, usually 100.
    yield from ("x" * length for length in (99, 100, 101, 200, 201))
    yield from _sweep()
    yield from _fuzz()


def _sweep() -> "Iterator[str]":
    """All characters of the planes in use: packages follow different versions of Unicode."""
    for row in (*range(0x400), 0xE00, 0xE01, 0xF00, 0x10FF):
        characters = [chr(row * 256 + i) for i in range(256) if not 0xD8 <= row <= 0xDF]
        yield "".join(characters)
        # U+3274B before 'S, on which two packages disagree, is among these.
        yield " ".join(f"{c}'S {c}1 a{c}" for c in characters[11::32])


def _fuzz() -> "Iterator[str]":
    alphabet = (*_SPACES, *_EMOJI, *_WORDS, "a", "the", "The", " the", "\u0301")
    for number in range(_FUZZED):
        # A digest and not a random generator: the same for every version of every package.
        draws = hashlib.sha512(f"torture {number}".encode()).digest()
        yield "".join(alphabet[draw % len(alphabet)] for draw in draws)


def _own(tokenizer: TextTokenizer) -> "Iterator[str]":
    added = [one.content for one in tokenizer.backend.get_added_tokens_decoder().values()]
    yield from (f"x{text} y {text}{text}\n{text} z" for text in added)
    for text in added[:_VARIED]:
        yield from (text, f" {text} ", f"a{text}b", text[:-1], text[1:], text.upper(), text.lower())
    pieces = sorted(tokenizer.backend.get_vocab(with_added_tokens=False))
    yield from pieces[:: max(1, len(pieces) // _PIECES)]
