"""What a damaged description is refused for comes with the name of its file."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from loaders.errors import FormatError
from loaders.format.files import crc32c_digits, to_json
from preprocess.check import check_dataset
from tests.small_datasets import Made


def change(path: Path, before: bytes, after: bytes) -> None:
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after, 1))


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("tokens", b'"name":"tokens"', b'"name":"tokeNs"'),
        ("list table", b'"y","uint8",1', b'"y","uiot8",1'),
        ("list table", b'"dtype":"uint16"', b'"dtype":"uint96"'),
        ("images", b'"dtype":"uint8"', b'"dtype":"uin|8"'),
    ],
)
def test_a_manifest_is_named(
    kind: str, before: bytes, after: bytes, made: Made, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(made(kind, "tensor")[1], tmp_path / "out"))
    change(out / "manifest.json", before, after)
    with pytest.raises(FormatError) as caught:
        check_dataset(out)
    assert str(caught.value).startswith(f"{out / 'manifest.json'}: ")
    assert str(caught.value).count("manifest.json") == 1


def test_a_schema_is_named(made: Made, tmp_path: Path) -> None:
    out = Path(shutil.copytree(made("table", "tensor")[1], tmp_path / "out"))
    path = out / "table/schema.json"
    value: Any = json.loads(path.read_bytes())
    next(c for c in value["columns"] if c["kind"] == "categorical")["dtype"] = "float32"
    path.write_bytes(to_json(value))
    manifest: Any = json.loads((out / "manifest.json").read_bytes())
    data = path.read_bytes()
    manifest["extras"]["table/schema.json"] = [len(data), crc32c_digits(data)]
    manifest.pop("crc32c")
    manifest["crc32c"] = crc32c_digits(to_json(manifest))
    (out / "manifest.json").write_bytes(to_json(manifest))
    problems = check_dataset(out).problems
    assert [problem for problem in problems if problem.startswith(f"{path}: column ")]
