"""Tables that are made to hurt: each is named, and costs little."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from preprocess.cli import prep


def prepare(source: Path, *words: str) -> Result:
    """Prepare a table by the command."""
    out = source.parent / f"{source.name}.out"
    return CliRunner().invoke(prep, ["table", str(source), str(out), *words])


def skipped(source: Path) -> list[dict[str, Any]]:
    """Return what was left out of it."""
    lines = (source.parent / f"{source.name}.out" / "skipped.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_record_of_json_that_is_too_long_is_named_wherever_it_stands(
    place: int, compressed: bool, tmp_path: Path
) -> None:
    lines = [b'{"x": 1}', b'{"x": 2}']
    lines.insert(place - 1, b'{"x": "' + b"a" * 21_000_000 + b'"}')
    data = b"".join(line + b"\n" for line in lines)
    path = tmp_path / ("a.jsonl.gz" if compressed else "a.jsonl")
    path.write_bytes(gzip.compress(data, 1) if compressed else data)
    result = prepare(path)
    assert result.exit_code == 3, result.output
    (entry,) = skipped(path)
    assert entry["key"] == f"{path.name}:{place}"
    assert "a record may have 16,000,000" in entry["reason"]
