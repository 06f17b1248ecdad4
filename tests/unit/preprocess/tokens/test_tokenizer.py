"""Finding a tokenizer, loading it, and what it knows about itself."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from preprocess.errors import SourceError
from preprocess.tokens.tokenizer import TextTokenizer
from preprocess.tokens.tokenizer_source import find_tokenizer
from tests.tokenizers_made import LINES, make_bpe, make_unigram, make_wordpiece
from tests.waiting import SECONDS

if TYPE_CHECKING:
    import pyarrow as pa


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe(tmp_path_factory.mktemp("tokenizer") / "bpe")


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wordpiece(tmp_path_factory.mktemp("tokenizer") / "wordpiece")


@pytest.fixture(scope="module")
def unigram(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_unigram(tmp_path_factory.mktemp("tokenizer") / "unigram")


def load(folder: Path, specials: str = "text") -> TextTokenizer:
    return TextTokenizer(find_tokenizer(str(folder)), specials=specials)  # type: ignore[arg-type]


def strings(*texts: str) -> "pa.LargeStringArray":
    import pyarrow as pa

    return pa.array(texts, pa.large_string())


def test_a_folder_is_found_with_the_files_that_make_the_tokenizer(bpe: Path) -> None:
    source = find_tokenizer(str(bpe))
    assert source.path == source.folder == bpe.absolute()
    assert source.files == ("tokenizer.json", "tokenizer_config.json")


def test_a_tokenizer_json_with_its_settings_beside_it_means_the_folder(bpe: Path) -> None:
    assert find_tokenizer(str(bpe / "tokenizer.json")) == find_tokenizer(str(bpe))


def test_a_lone_tokenizer_json_loads_without_named_tokens(bpe: Path, tmp_path: Path) -> None:
    lone = tmp_path / "mine.json"
    shutil.copy(bpe / "tokenizer.json", lone)
    source = find_tokenizer(str(lone))
    assert source.files == ("mine.json",)
    assert source.folder == tmp_path
    tokenizer = TextTokenizer(source)
    assert tokenizer.eos_id is None
    assert tokenizer.id_of("<|endoftext|>") == 0


def test_a_copy_of_the_files_is_the_same_tokenizer(wordpiece: Path, tmp_path: Path) -> None:
    source = find_tokenizer(str(wordpiece))
    for name in source.files:
        shutil.copy(source.folder / name, tmp_path / name)
    copied = find_tokenizer(str(tmp_path))
    assert copied.sha256 == source.sha256
    assert TextTokenizer(copied).cleaned == TextTokenizer(source).cleaned


def test_the_digest_follows_every_file(bpe: Path, tmp_path: Path) -> None:
    shutil.copytree(bpe, tmp_path / "other")
    before = find_tokenizer(str(tmp_path / "other")).sha256
    (tmp_path / "other" / "chat_template.jinja").write_text("{{ messages }}")
    assert find_tokenizer(str(tmp_path / "other")).sha256 != before


def test_the_digest_follows_names_and_the_last_byte(bpe: Path, tmp_path: Path) -> None:
    shutil.copytree(bpe, tmp_path / "other")
    before = find_tokenizer(str(bpe)).sha256
    settings = tmp_path / "other" / "tokenizer_config.json"
    settings.write_text(settings.read_text()[:-1] + " }")
    changed = find_tokenizer(str(tmp_path / "other")).sha256
    settings.write_text(settings.read_text()[:-2] + "\n}")
    assert len({before, changed, find_tokenizer(str(tmp_path / "other")).sha256}) == 3
    settings.rename(tmp_path / "other" / "added_tokens.json")
    assert find_tokenizer(str(tmp_path / "other")).sha256 not in {before, changed}


def test_a_name_in_the_local_cache_is_found(
    bpe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "models--someone--small"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    shutil.copytree(bpe, repository / "snapshots" / ("0" * 40))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    source = find_tokenizer("someone/small")
    assert source.sha256 == find_tokenizer(str(bpe)).sha256


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no/such-name", "not in the local Hugging Face cache"),
        ("no/such/folder/at all", "no such folder or file"),
    ],
)
def test_what_is_not_here_is_not_downloaded(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(SourceError, match=said):
        find_tokenizer(name)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SourceError, match=r"tokenizer\.json is expected"):
        find_tokenizer(str(tmp_path))


@pytest.mark.parametrize("name", ["cl100k_base.tiktoken", "tokenizer.model"])
def test_files_without_a_splitting_rule_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("IQ== 0\n")
    with pytest.raises(SourceError, match="convert it once"):
        find_tokenizer(str(tmp_path / name))


def test_a_damaged_tokenizer_is_refused_in_one_line(bpe: Path, tmp_path: Path) -> None:
    shutil.copy(bpe / "tokenizer_config.json", tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(SourceError, match="cannot load this tokenizer") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_code_that_comes_with_a_tokenizer_is_not_run(bpe: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    settings = {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "tokenizer_class": "Evil"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    with pytest.raises(SourceError):
        load(tmp_path)


def test_the_tokenizer_knows_its_named_tokens(bpe: Path, wordpiece: Path, unigram: Path) -> None:
    one, two, three = load(bpe), load(wordpiece), load(unigram)
    assert (one.eos_id, one.bos_id, one.pad_id, one.unk_id) == (0, 0, 1, None)
    assert (two.eos_id, two.bos_id, two.pad_id, two.unk_id) == (3, 2, 0, 1)
    assert (three.eos_id, three.bos_id, three.pad_id, three.unk_id) == (1, None, 0, 2)
    assert (one.unknown, two.unknown, three.unknown) == (None, ("[UNK]", 1), ("<unk>", 2))


def test_what_is_put_around_a_text_is_known(bpe: Path, wordpiece: Path, unigram: Path) -> None:
    around = [(one.prefix_ids, one.suffix_ids) for one in map(load, (bpe, wordpiece, unigram))]
    assert around == [((), ()), ((2,), (3,)), ((), (1,))]


@pytest.mark.parametrize(("largest", "dtype"), [(65_535, "uint16"), (65_536, "uint32")])
def test_the_dtype_follows_the_largest_id_with_added_tokens(
    largest: int, dtype: str, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer, models

    pieces = [("<unk>", 0.0), *((f"p{i}", -1.0) for i in range(largest - 1))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = load(tmp_path / "tokenizer.json")
    assert loaded.id_of("<|end|>") == loaded.largest_id == largest
    assert loaded.dtype == dtype


def test_padding_and_truncation_of_the_file_are_off(wordpiece: Path) -> None:
    tokenizer = load(wordpiece)
    stored = json.loads((wordpiece / "tokenizer.json").read_text())
    assert stored["truncation"]
    assert stored["padding"]
    long = " ".join(["reading"] * 100)
    assert len(tokenizer.backend.encode(long, add_special_tokens=False).ids) >= 100
    assert len(tokenizer.backend.encode("dog", add_special_tokens=False).ids) < 16


def test_calls_of_transformers_do_not_change_how_texts_are_encoded(wordpiece: Path) -> None:
    tokenizer = load(wordpiece)
    before = tokenizer.backend.encode("[CLS] dog", add_special_tokens=False).ids
    tokenizer.pretrained("[CLS] dog", padding="max_length", truncation=True, max_length=7)
    assert tokenizer.backend.encode("[CLS] dog", add_special_tokens=False).ids == before


def test_an_unknown_token_name_is_refused_with_those_that_exist(bpe: Path) -> None:
    with pytest.raises(SourceError, match=r"'</s>' is not a token .* <\|endoftext\|>"):
        load(bpe).id_of("</s>")


def test_decoding_shows_special_tokens(bpe: Path) -> None:
    tokenizer = load(bpe)
    ids = [*tokenizer.backend.encode("a fox", add_special_tokens=False).ids, 0]
    assert tokenizer.decode(np.array(ids, np.uint16)) == "a fox<|endoftext|>"


def test_texts_that_hold_special_tokens_are_found(bpe: Path) -> None:
    texts = strings("plain", "a<|endoftext|>b", "<|endoftext|", "<|pad|>", "")
    assert load(bpe).special_hits(texts).tolist() == [False, True, False, True, False]
    assert load(bpe).special_hits(texts.slice(1, 2)).tolist() == [True, False]
    assert load(bpe).special_hits(strings()).tolist() == []


PREPEND = {"type": "Prepend", "prepend": "\u2581"}
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}


def normalized(folder: Path, out: Path, normalizer: dict[str, object]) -> TextTokenizer:
    """Load a tokenizer that looks for its special tokens in the normalized text."""
    content = json.loads((folder / "tokenizer.json").read_text())
    content["normalizer"] = normalizer
    for token in content["added_tokens"]:
        token["normalized"] = True
    (out / "tokenizer.json").write_text(json.dumps(content))
    return load(out / "tokenizer.json")


def test_special_tokens_sought_in_the_normalized_text_are_found(bpe: Path, tmp_path: Path) -> None:
    tokenizer = normalized(bpe, tmp_path, {"type": "Lowercase"})
    hits = tokenizer.special_hits(strings("a<|EndOfText|>b", "<|endoftext|>", "EndOfText", ""))
    assert hits.tolist() == [True, True, False, False]


def test_special_tokens_behind_changed_spaces_are_found(bpe: Path, tmp_path: Path) -> None:
    tokenizer = normalized(bpe, tmp_path, {"type": "Sequence", "normalizers": [PREPEND, SPACES]})
    # The prefix is put before the special tokens as well: they are met after a space alone.
    hits = tokenizer.special_hits(
        strings("<|pad|>", "a <|pad|>b", "a<|pad|>", "dog", "a <|endoftext|> b")
    )
    assert hits.tolist() == [True, True, False, False, True]


def test_the_text_of_an_unknown_token_is_found_and_unknown_letters_are_not(
    unigram: Path, tmp_path: Path
) -> None:
    texts = strings("x <unk>", "\u4e01", "dog", "</s>")
    hits = [True, False, False, True]
    assert load(unigram).special_hits(texts).tolist() == hits
    late = normalized(unigram, tmp_path, {"type": "NFKC"})
    assert late.special_hits(texts).tolist() == hits


@pytest.mark.parametrize("make", [make_bpe, make_wordpiece, make_unigram])
def test_text_cannot_write_special_ids_unless_it_is_parsed(make, tmp_path: Path) -> None:
    folder = make(tmp_path)
    plain, parsing = load(folder), load(folder, "parse")
    for text, number in plain.special_ids.items():
        if plain.unknown is not None and number == plain.unknown[1]:
            continue
        for probe in (text, f" {text}{text} ", f"dog{text}dog", f"{LINES[0]}{text}"):
            assert number in parsing.backend.encode(probe, add_special_tokens=False).ids
            assert number not in plain.backend.encode(probe, add_special_tokens=False).ids


def test_texts_without_special_tokens_are_the_same_in_every_mode(unigram: Path) -> None:
    modes = [load(unigram, mode).backend for mode in ("text", "parse", "error")]
    for line in LINES:
        assert len({tuple(one.encode(line, add_special_tokens=False).ids) for one in modes}) == 1


def test_the_module_loads_no_heavy_package() -> None:
    code = (
        "import sys, preprocess.tokens.tokenizer, preprocess.tokens.engine_check; "
        "print(sorted({'torch', 'transformers', 'tokenizers', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=SECONDS
    )
    assert done.stdout.strip() == "[]"
