"""A tiktoken file as a tokenizer: what is recognized and refused, and whose ids it gives."""

import base64
import hashlib
import json
import random
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.format.spec import read_manifest
from preprocess.errors import SourceError
from preprocess.tokens import tiktoken_pattern
from preprocess.tokens.loading import load_here, plain_content
from preprocess.tokens.tiktoken_pattern import PATTERNS, translate_pattern
from preprocess.tokens.tokenizer import TextTokenizer
from preprocess.tokens.tokenizer_source import find_tokenizer
from preprocess.tokens.tokenizer_tiktoken import TiktokenFile, is_tiktoken, name_tokenizer
from tests.token_commands import call, prepare, stored, write_jsonl
from tests.tokenizers_made import LINES, make_bpe
from tests.waiting import SECONDS

SPECIALS = 2
"""Special tokens at the head of the made BPE, which a tiktoken file does not have."""

PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
HIDDEN = [byte for byte in range(256) if byte not in PRINTED]
BYTES = {chr(byte): byte for byte in PRINTED} | {chr(256 + i): b for i, b in enumerate(HIDDEN)}
SINGLE = [bytes([byte]) for byte in range(256)]

TEXTS = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from([*LINES, "<|endoftext|>", "<|end|>", " ", "  ", "'s", "\r\n", "e\u0301"]),
    ),
    max_size=6,
).map("".join)


def tokens_of(folder: Path) -> list[bytes]:
    """Give the tokens of a byte-level BPE by their ids, special ones left out."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = sorted(content["model"]["vocab"].items(), key=lambda pair: pair[1])
    return [bytes(BYTES[letter] for letter in text) for text, _ in vocabulary[SPECIALS:]]


def lines_of(tokens: list[bytes]) -> list[bytes]:
    return [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens)]


def write_tokens(path: Path, tokens: list[bytes]) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines_of(tokens)))
    return path


def load(path: Path, pattern: str | None = "gpt2", eos: str | None = None) -> TextTokenizer:
    return TextTokenizer(find_tokenizer(TiktokenFile(path=str(path), pattern=pattern, eos=eos)))


def ids(tokenizer: TextTokenizer, text: str) -> list[int]:
    found: list[int] = tokenizer.backend.encode(text, add_special_tokens=False).ids
    return found


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe(tmp_path_factory.mktemp("tiktoken") / "bpe")


@pytest.fixture
def ranks(bpe: Path, tmp_path: Path) -> Path:
    return write_tokens(tmp_path / "made.tiktoken", tokens_of(bpe))


# -------------------------------------------------------------------------------------------- ids


@cache
def made_twice() -> tuple[TextTokenizer, TextTokenizer]:
    with tempfile.TemporaryDirectory() as name:
        folder = make_bpe(Path(name))
        ranks = write_tokens(folder / "made.ranks", tokens_of(folder))
        return TextTokenizer(find_tokenizer(str(folder))), load(ranks, eos="<|end|>")


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_any_text_gives_the_ids_of_the_bpe_that_the_ranks_are_of(text: str) -> None:
    trained, ranked = made_twice()
    assert [one - SPECIALS for one in ids(trained, text)] == ids(ranked, text)


def test_the_merges_are_those_of_the_training() -> None:
    trained, ranked = (json.loads(one.cleaned)["model"]["merges"] for one in made_twice())
    assert ranked == trained


def merged(piece: bytes, ranks: dict[bytes, int]) -> list[int]:
    """Encode one piece as tiktoken does: the leftmost pair of the lowest rank first."""
    if piece in ranks:
        return [ranks[piece]]
    parts = [piece[at : at + 1] for at in range(len(piece))]
    while True:
        joint = [parts[at] + parts[at + 1] for at in range(len(parts) - 1)]
        known = [ranks[token] for token in joint if token in ranks]
        if not known:
            return [ranks[part] for part in parts]
        at = next(at for at, token in enumerate(joint) if ranks.get(token) == min(known))
        parts[at : at + 2] = [joint[at]]


@pytest.mark.parametrize("seed", range(12))
def test_ranks_that_no_training_makes_merge_the_lowest_first_too(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    longer = {bytes(chance.choices(b"ab", k=chance.randint(2, 7))) for _ in range(40)}
    tokens = [*SINGLE, *sorted(longer)]
    chance.shuffle(tokens)
    tokenizer = load(write_tokens(tmp_path / "ranks", tokens), r"[ab]+|[^ab]")
    order = {token: rank for rank, token in enumerate(tokens)}
    for _ in range(200):
        piece = "".join(chance.choices("ab", k=chance.randint(1, 24)))
        assert ids(tokenizer, piece) == merged(piece.encode(), order), piece


def test_lines_may_stand_in_any_order_and_end_as_on_windows(ranks: Path, tmp_path: Path) -> None:
    lines = ranks.read_bytes().splitlines()
    random.Random(1).shuffle(lines)
    other = tmp_path / "other.txt"
    other.write_bytes(b"\r\n".join(lines))
    assert load(other).cleaned == load(ranks).cleaned


# ------------------------------------------------------------------------- what makes the tokenizer


@pytest.mark.parametrize("name", ["a.tiktoken", "tokenizer.model", "ranks.json", "plain"])
def test_the_content_tells_a_tiktoken_file_whatever_its_name(ranks: Path, name: str) -> None:
    renamed = ranks.rename(ranks.with_name(name))
    assert is_tiktoken(renamed)
    source = find_tokenizer(TiktokenFile(path=str(renamed), pattern="gpt2"))
    assert list(source.copies()) == [
        "tokenizer.json",
        "tokenizer_config.json",
        "original.tiktoken",
    ]


def test_a_name_alone_makes_no_tiktoken_file(bpe: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.tiktoken"
    path.write_bytes((bpe / "tokenizer.json").read_bytes())
    assert not is_tiktoken(path)
    with pytest.raises(SourceError, match=r"a tiktoken file .*, which this is not"):
        find_tokenizer(str(path))


def test_the_digest_follows_bytes_pattern_and_eos_and_not_the_name(ranks: Path) -> None:
    def digest(path: Path, pattern: str, eos: str | None) -> str:
        return find_tokenizer(TiktokenFile(path=str(path), pattern=pattern, eos=eos)).sha256

    given = [("gpt2", None), ("gpt2", "<|end|>"), ("o200k_base", None)]
    found = [digest(ranks, *one) for one in given]
    assert len({*found}) == 3
    ranks = ranks.rename(ranks.with_name("renamed"))
    assert digest(ranks, *given[0]) == found[0]
    ranks.write_bytes(ranks.read_bytes()[:-1])
    assert digest(ranks, *given[0]) != found[0]


def test_a_file_that_changes_after_it_was_found_is_not_loaded(ranks: Path, bpe: Path) -> None:
    source = find_tokenizer(TiktokenFile(path=str(ranks), pattern="gpt2"))
    other = write_tokens(ranks.with_name("other"), tokens_of(bpe)[:-1])
    find_tokenizer(TiktokenFile(path=str(other), pattern="gpt2"))
    other.rename(ranks)
    with pytest.raises(SourceError, match="changed while it was read"):
        TextTokenizer(source)


def test_the_text_of_eos_becomes_a_special_token_behind_the_last_rank(ranks: Path) -> None:
    tokenizer = load(ranks, eos="<|end|>")
    count = len(ranks.read_bytes().splitlines())
    assert tokenizer.eos_id == tokenizer.largest_id == count
    assert tokenizer.special_ids == {"<|end|>": count}
    assert count not in ids(tokenizer, "a<|end|>b")
    assert load(ranks).eos_id is None


def test_a_token_of_the_vocabulary_is_not_added_again(ranks: Path) -> None:
    tokenizer = load(ranks, eos="d")
    assert tokenizer.special_ids == {}
    assert tokenizer.id_of("d") == ids(tokenizer, "d")[0]


@pytest.mark.parametrize("eos", ["\n", "\u010a", " ", "\u0120a"])
def test_ordinary_text_is_no_end_of_documents(ranks: Path, eos: str) -> None:
    with pytest.raises(SourceError, match="a piece of ordinary text"):
        load(ranks, eos=eos)


def test_a_published_file_brings_pattern_and_special_tokens_at_their_ids(
    ranks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in p50k_base, one special token has an id among the ranks, and as in cl100k_base the ids
    # behind them have gaps.
    tokens = tokens_of_file(ranks)
    ids_left = [number for number in range(len(tokens) + 1) if number != 300]
    rows = zip(tokens, ids_left, strict=True)
    ranks.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % number for t, number in rows))
    known = {"<|endoftext|>": 300, "<|last|>": len(tokens) + 5}
    sha256 = hashlib.sha256(ranks.read_bytes()).hexdigest()
    monkeypatch.setitem(tiktoken_pattern.DIGESTS, sha256, "made")
    monkeypatch.setitem(tiktoken_pattern.SPECIALS, "made", known)
    monkeypatch.setitem(tiktoken_pattern.PATTERNS, "made", PATTERNS["cl100k_base"])
    tokenizer = TextTokenizer(find_tokenizer(str(ranks)))
    assert tokenizer.special_ids == known
    assert (tokenizer.eos_id, tokenizer.bos_id, tokenizer.pad_id) == (300, 300, None)
    assert tokenizer.largest_id == len(tokens) + 5
    assert len(tokenizer.pretrained) == len(tokens) + 6
    assert ids(tokenizer, "123d") == [
        ids_left[tokens.index(one)] for one in (b"1", b"2", b"3", b"d")
    ]
    assert not {*known.values()} & {*ids(tokenizer, "<|endoftext|><|last|><|reserved_600|>")}
    more = TextTokenizer(find_tokenizer(TiktokenFile(path=str(ranks), eos="<|mine|>")))
    assert more.special_ids == {**known, "<|mine|>": len(tokens) + 6}
    with pytest.raises(SourceError, match="this is made, whose pattern is known"):
        load(ranks)


def test_every_published_encoding_has_pattern_and_special_tokens() -> None:
    names = {*tiktoken_pattern.DIGESTS.values()}
    assert names == {*tiktoken_pattern.SPECIALS} == {*PATTERNS} - {"gpt2"}
    for name in names:
        assert "<|endoftext|>" in tiktoken_pattern.SPECIALS[name]
        translate_pattern(name)


def test_torch_is_not_loaded(ranks: Path) -> None:
    code = (
        "import sys; from preprocess.tokens.tokenizer import TextTokenizer;"
        "from preprocess.tokens.tokenizer_source import find_tokenizer;"
        "from preprocess.tokens.tokenizer_tiktoken import TiktokenFile;"
        f"TextTokenizer(find_tokenizer(TiktokenFile(path={str(ranks)!r}, pattern='gpt2')));"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=SECONDS
    )
    assert done.stdout.strip() == "False"


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "line 5: expected base64 and a rank, not b''"),
        (b" 4", "line 5: expected base64"),
        (b"BA== 4 4", "line 5: expected base64"),
        (b"BA= 4", "line 5: expected base64"),
        (b"BA== -4", "line 5: expected base64"),
        (b"B*== 4", "line 5: expected base64"),
        (b"\xff\xfe 4", r"line 5: expected base64 and a rank, not b'\\xff\\xfe 4'"),
        (b"AA== 4", "line 5: token is on line 1 too"),
        (b"BA== 3", "line 5: rank 3 is on line 4 too"),
        (b"BA== 9999", r"line 5: rank 9999 of \d+ tokens: expected each of 0\.\.\d+ once"),
    ],
)
def test_a_wrong_line_is_named(ranks: Path, line: bytes, said: str) -> None:
    tokens = [token for token in tokens_of_file(ranks) if token not in SINGLE]
    lines = lines_of([*SINGLE, *tokens])
    lines[4] = line
    ranks.write_bytes(b"\n".join(lines))
    with pytest.raises(SourceError, match=said) as caught:
        load(ranks)
    assert "\n" not in str(caught.value)


def tokens_of_file(path: Path) -> list[bytes]:
    return [base64.b64decode(line.split()[0]) for line in path.read_bytes().splitlines()]


def test_a_vocabulary_without_every_byte_is_refused(ranks: Path) -> None:
    kept = [token for token in tokens_of_file(ranks) if token not in {b"\xfe", b"\xff"}]
    with pytest.raises(SourceError, match=r"without a token for byte 0xFE .2 of 256 bytes"):
        load(write_tokens(ranks, kept))


def test_a_file_whose_pattern_is_not_known_is_refused_with_the_option(ranks: Path) -> None:
    with pytest.raises(SourceError, match=r"give --tiktoken-pattern one of gpt2, .*o200k_base"):
        find_tokenizer(str(ranks))


def test_a_pattern_is_refused_with_every_other_tokenizer(bpe: Path) -> None:
    for path in (bpe, bpe / "tokenizer.json", Path("no/such")):
        named = name_tokenizer(str(path), "gpt2", None)
        with pytest.raises(SourceError, match="--tiktoken-pattern is for such files only"):
            find_tokenizer(named)
    assert name_tokenizer(str(bpe), None, "<|end|>") == str(bpe)


# --------------------------------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("given", "translated"),
    [
        (r"\pL+|\P{L}", r"\p{L}+|\P{L}"),
        (r"\p{N}{1,3}+|[^a]{2}+", r"(?>\p{N}{1,3})|(?>[^a]{2})"),
        (r"^a|\s++$|[$^]|\$", r"\Aa|\s++\z|[$^]|\$"),
        (r"a{2}?|a{2,3}?", r"a{2}|a{2,3}?"),
        (r"\\pL|[\]$]", r"\\pL|[\]$]"),
        ("o200k_base", PATTERNS["o200k_base"]),
        ("gpt2", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    ],
)
def test_what_oniguruma_reads_otherwise_is_translated(given: str, translated: str) -> None:
    assert translate_pattern(given) == translated


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("cl100k", "no published encoding of this name"),
        ("", "no published encoding of this name"),
        ("(", "unmatched parenthesis"),
        (r"\w+|\W", r"'\\\\w'"),
        (r"[^\w]|.", r"'\\\\w'"),
        (r"[[:alpha:]]+", r"'\[:'"),
        (r"\p{Punct}+", "Punct"),
        (r"\xe9", r"'\\\\xe9'"),
        (r"(?s:.)", r"'\(\?s:'"),
        (r"(?i)a|b", r"'\(\?i\)'"),
        (r"(?i:ss)|.", "two cases"),
        (r"(?i:\p{Lu})|.", "two cases"),
        (r"(ab){1,2}+|.", r"write \(\?>"),
    ],
)
def test_what_cannot_be_translated_is_refused_by_name(given: str, said: str) -> None:
    with pytest.raises(SourceError, match=said) as caught:
        translate_pattern(given)
    assert "\n" not in str(caught.value)


def split(pattern: str, text: str) -> list[str]:
    from tokenizers import Regex, pre_tokenizers

    splitter: Any = pre_tokenizers.Split(Regex(translate_pattern(pattern)), "isolated")
    return [piece for piece, _ in splitter.pre_tokenize_str(text)]


def test_numbers_are_cut_and_white_space_ends_as_tiktoken_has_it() -> None:
    assert split("cl100k_base", "1234567") == ["123", "456", "7"]
    assert split("cl100k_base", "a\n\n b\n  ") == ["a", "\n\n", " b", "\n  "]
    assert split("cl100k_base", "it'S'ſ") == ["it", "'S", "'ſ"]
    assert split("o200k_base", "MyPage's  x\n  ") == ["My", "Page's", " ", " x", "\n", "  "]


# ------------------------------------------------------------------------------------ the command


def test_the_command_makes_shards_and_a_tokenizer_that_transformers_loads(
    ranks: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    out = tmp_path / "out"
    texts = ["a quick dog", "", "<|end|> of it's 1000 lines\n"]
    source = write_jsonl(tmp_path / "in.jsonl", texts)
    words = ["--tiktoken-pattern", "gpt2", "--eos", "<|end|>"]
    result = prepare(source, out, ranks, *words)
    assert result.exit_code == 0, result.stderr
    tokenizer = load(ranks, eos="<|end|>")
    assert [one for _, one in stored(out)] == [
        [*ids(tokenizer, text), tokenizer.eos_id] for text in texts
    ]
    assert (out / "tokenizer" / "original.tiktoken").read_bytes() == ranks.read_bytes()
    loaded: Any = AutoTokenizer.from_pretrained(str(out / "tokenizer"))
    assert loaded.eos_token_id == tokenizer.eos_id
    assert json.loads(loaded.backend_tokenizer.to_str()) == json.loads(
        load_here(tokenizer.source).whole()
    )
    assert plain_content(loaded.backend_tokenizer) == tokenizer.cleaned
    facts = read_manifest(out).recipe["tokenizer"]
    assert facts["eos_id"] == tokenizer.eos_id
    assert "tokenizer/original.tiktoken" in facts["files"]
    shown = call("info", str(out), "--show", "3")
    assert "a quick dog<|end|>|" in shown.stdout
    assert call("check", str(out), "--full").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --tiktoken-pattern one of"),
        (["--tiktoken-pattern", "gpt2"], "name one with --eos"),
        (["--tiktoken-pattern", r"\w+"], "differ in what it matches"),
    ],
)
def test_the_command_refuses_in_one_line(
    ranks: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["a"])
    result = prepare(source, tmp_path / "out", ranks, *words)
    assert result.exit_code == 1
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
