"""Engines through `prep tokens`: the same bytes from each, and what becomes of one that errs."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loaders.format.spec import read_manifest
from preprocess.tokens import engine_packages
from tests.token_commands import call, prepare, read_files, write_jsonl
from tests.tokenizers_made import LINES, make_bpe, make_wordpiece

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

RARE = "zyzzyva"
FAST = [("gigatoken", make_bpe), ("fastokens", make_bpe), ("nanotoken", make_wordpiece)]


def shards_in(out: Path) -> dict[str, bytes]:
    return {name: data for name, data in read_files(out).items() if name.startswith("train/")}


@pytest.mark.parametrize(("engine", "make"), FAST)
@pytest.mark.parametrize("layout", [[], ["--layout", "fixed", "--length", "12"]])
def test_every_engine_stores_the_same_bytes(
    tmp_path: Path, engine: str, make: Callable[[Path], Path], layout: list[str]
) -> None:
    if find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    source = write_jsonl(tmp_path / "in.jsonl", [*LINES, "", "a <|pad|> b [SEP] c", "'ſ e\u0301"])
    tokenizer = make(tmp_path / "tokenizer")
    made = {}
    for name in (engine, "transformers", "auto"):
        result = prepare(source, tmp_path / name, tokenizer, "--engine", name, *layout)
        assert result.exit_code == 0, result.stderr
        made[name] = shards_in(tmp_path / name)
    assert made[engine] == made["transformers"] == made["auto"]
    verdict = read_manifest(tmp_path / engine).recipe["engine"]
    assert verdict["engine"] == engine
    assert verdict["compared"] > 2000


def test_an_engine_that_is_not_there_is_an_error_in_one_line(tmp_path: Path) -> None:
    source, tokenizer = write_jsonl(tmp_path / "in.jsonl", ["a"]), make_bpe(tmp_path / "bpe")
    result = prepare(source, tmp_path / "out", tokenizer, "--engine", "tiktoken")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "choose one of gigatoken, fastokens, nanotoken, transformers" in result.stderr
    result = prepare(source, tmp_path / "out", tokenizer, "--engine", "nanotoken")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("Error: nanotoken")


Encode = Callable[["pa.LargeStringArray"], "tuple[NDArray[np.uint32], NDArray[np.int64]]"]


@pytest.fixture
def wrong_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what puts, in gigatoken's place, a package that errs on documents with some text."""

    def put(piece: str) -> None:
        def load(cleaned: str) -> Encode:
            from tokenizers import Tokenizer

            backend: Any = Tokenizer.from_str(cleaned)

            def encode(texts: "pa.LargeStringArray") -> Any:
                found = [
                    backend.encode(text, add_special_tokens=False).ids for text in texts.to_pylist()
                ]
                for ids, text in zip(found, texts.to_pylist(), strict=True):
                    if piece in text:
                        ids[-1] += 1
                counts = np.array([len(ids) for ids in found], np.int64)
                return np.array([number for ids in found for number in ids], np.uint32), counts

            return encode

        monkeypatch.setitem(engine_packages.LOADERS, "gigatoken", load)  # type: ignore[attr-defined]

    return put


def test_an_engine_that_errs_on_hard_texts_is_passed_over_and_refused_by_name(
    tmp_path: Path, wrong_on: Callable[[str], None]
) -> None:
    wrong_on("\u200d")  # a joined emoji of the comparison holds it, and no text of the input
    source, tokenizer = write_jsonl(tmp_path / "in.jsonl", LINES), make_bpe(tmp_path / "bpe")
    assert prepare(source, tmp_path / "out", tokenizer, "--engine", "auto").exit_code == 0
    verdict = read_manifest(tmp_path / "out").recipe["engine"]
    assert verdict["engine"] != "gigatoken"
    assert "documents differ, the first: " in verdict["rejected"]["gigatoken"]
    named = prepare(source, tmp_path / "named", tokenizer, "--engine", "gigatoken")
    assert (named.exit_code, named.stderr.count("\n")) == (1, 1)
    assert "is not exact for" in named.stderr
    assert "use --engine auto" in named.stderr
    assert not (tmp_path / "named").exists()


def test_an_engine_that_errs_on_the_input_at_hand_is_passed_over(
    tmp_path: Path, wrong_on: Callable[[str], None]
) -> None:
    wrong_on(RARE)
    source, tokenizer = write_jsonl(tmp_path / "in.jsonl", [RARE]), make_bpe(tmp_path / "bpe")
    assert prepare(source, tmp_path / "out", tokenizer, "--engine", "auto").exit_code == 0
    assert RARE in read_manifest(tmp_path / "out").recipe["engine"]["rejected"]["gigatoken"]


@pytest.mark.parametrize("layout", [[], ["--layout", "packed", "--length", "64"]])
@pytest.mark.parametrize("workers", ["1", "3"])
def test_an_engine_that_errs_late_has_its_shards_made_again_and_says_so(
    tmp_path: Path, wrong_on: Callable[[str], None], layout: list[str], workers: str
) -> None:
    wrong_on(RARE)
    tokenizer = make_bpe(tmp_path / "bpe")
    # Of 16 files, the comparison before the run looks at every second one.
    for number in range(16):
        rare = f" {RARE}" if number == 15 else ""
        texts = [f"file {number} line {n}{rare}" for n in range(600)]
        write_jsonl(tmp_path / f"in/{number:02d}.jsonl", texts)
    words = [*layout, "--shard-size", "20kB", "--workers", workers]
    result = prepare(tmp_path / "in", tmp_path / "out", tokenizer, "--engine", "auto", *words)
    assert result.exit_code == 0, result.stderr
    assert "made again: 1 shards, whose first result was wrong" in result.stdout
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["redone_shards"] == 1
    manifest = read_manifest(tmp_path / "out")
    assert manifest.recipe["engine"]["engine"] == "gigatoken"
    assert len(manifest.splits["train"].counts) > 3
    exact = prepare(tmp_path / "in", tmp_path / "exact", tokenizer, *words)
    assert exact.exit_code == 0
    assert shards_in(tmp_path / "out") == shards_in(tmp_path / "exact")
    assert call("check", tmp_path / "out", "--full").exit_code == 0


@pytest.mark.parametrize("loses", [False, True])
def test_an_engine_that_breaks_down_late_has_its_shards_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loses: bool
) -> None:
    def load(cleaned: str) -> Encode:
        whole = engine_packages._fastokens(cleaned)

        def encode(texts: "pa.LargeStringArray") -> Any:
            if not any(RARE in text for text in texts.to_pylist()):
                return whole(texts)
            if loses:
                return whole(texts.slice(1))
            raise OverflowError("out of range")

        return encode

    pytest.importorskip("fastokens")
    monkeypatch.setitem(engine_packages.LOADERS, "gigatoken", load)  # type: ignore[attr-defined]
    tokenizer = make_bpe(tmp_path / "bpe")
    for number in range(16):
        rare = f" {RARE}" if number == 15 else ""
        write_jsonl(tmp_path / f"in/{number:02d}.jsonl", [f"{number} {n}{rare}" for n in range(9)])
    words = ["--shard-size", "100B", "--json"]
    result = prepare(tmp_path / "in", tmp_path / "out", tokenizer, "--engine", "auto", *words)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["redone_shards"] == 1
    assert read_manifest(tmp_path / "out").recipe["engine"]["engine"] == "gigatoken"
    assert prepare(tmp_path / "in", tmp_path / "exact", tokenizer, *words).exit_code == 0
    assert shards_in(tmp_path / "out") == shards_in(tmp_path / "exact")


def test_documents_are_audited_in_number(tmp_path: Path) -> None:
    pytest.importorskip("gigatoken")
    source = write_jsonl(tmp_path / "in.jsonl", [f"line {n}" for n in range(5000)])
    tokenizer = make_bpe(tmp_path / "bpe")
    result = prepare(source, tmp_path / "out", tokenizer, "--engine", "gigatoken", "--json")
    tallies = json.loads(result.stdout)["tallies"]
    assert tallies["documents"] == [5000]
    assert 1 <= tallies["audited"][0] <= 20
