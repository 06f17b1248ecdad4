"""`prep tokens` called as a function, and what it stored beside what `tokenizers` alone gives."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from loaders import open_tokens
from preprocess.cli import prep


def call(*words: str | Path) -> Result:
    """Call the command; what it did not expect is raised here."""
    result = CliRunner().invoke(prep, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def prepare(source: Path, out: Path, tokenizer: Path, *words: str | Path) -> Result:
    """Prepare tokens with the reference, which needs no comparison and so starts at once."""
    named = () if "--engine" in words else ("--engine", "transformers")
    return call("tokens", source, out, "--tokenizer", tokenizer, *named, *words)


def stored(out: Path, split: str = "train") -> list[tuple[str, list[int]]]:
    """Return key and ids of every document of layout stream."""
    documents = open_tokens(out, split).documents()
    samples = [documents[index] for index in range(len(documents))]
    return [(sample["key"], sample["tokens"].tolist()) for sample in samples]


def skipped(out: Path) -> dict[str, str]:
    """Return the reasons of `skipped.jsonl` by key."""
    lines = (out / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    return {entry["key"]: entry["reason"] for entry in map(json.loads, lines)}


class Alone:
    """A tokenizer as the `tokenizers` library has it, without a line of ours."""

    def __init__(self, folder: Path, *, specials: str = "text") -> None:
        from tokenizers import Tokenizer

        self.tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.tokenizer.encode_special_tokens = specials != "parse"

    def id_of(self, token: str) -> int:
        number: int = self.tokenizer.token_to_id(token)
        return number

    def ids(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def text(self, ids: Sequence[int]) -> str:
        found: str = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return found


def write_jsonl(path: Path, texts: Iterable[str], **more: Sequence[Any]) -> Path:
    """Write one record a text; `more` gives further keys, each with one value a text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns: Mapping[str, Sequence[Any]] = {"text": list(texts), **more}
    rows = zip(*columns.values(), strict=True)
    lines = [json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def read_files(out: Path) -> dict[str, bytes]:
    """Return the bytes of a dataset by path, without those that hold times."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in {"report.json", "items.jsonl"}
    }
