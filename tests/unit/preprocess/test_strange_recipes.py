"""A manifest whose options are not what this version records: refused, never a traceback."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loaders.errors import FormatError, ShardsError
from loaders.format.files import crc32c_digits, to_json
from loaders.format.spec import read_manifest
from preprocess.commands.described import dataset_texts, describe_dataset
from preprocess.recorded import Moved, Recorded
from preprocess.report import read_aside
from preprocess.tables.like import read_like
from tests.fuzz_targets import describe_any, read_any
from tests.small_datasets import KINDS, Made

OTHERS: list[Any] = [None, 7, "x", [[]], {"x": None}]


def state(out: Path, whole: dict[str, Any], name: str, value: Any) -> None:
    """Let a manifest that is otherwise whole state something else, or nothing, in its recipe."""
    found = json.loads(json.dumps(whole))
    del found["crc32c"]
    if value is KeyError:
        del found["recipe"][name]
    else:
        found["recipe"][name] = value
    (out / "manifest.json").write_bytes(to_json({**found, "crc32c": crc32c_digits(to_json(found))}))


def unexpected(look: Callable[[], Any]) -> Iterator[str]:
    """Yield what comes out of a call beside errors of ours."""
    try:
        look()
    except ShardsError:
        return
    except Exception as error:  # noqa: BLE001 - all of them are named
        yield f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("kind", KINDS)
def test_strange_options_are_read_as_far_as_they_are_used_or_refused(
    kind: str, made: Made, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(made(kind, "tensor")[1], tmp_path / "out"))
    whole = json.loads((out / "manifest.json").read_bytes())
    found = []
    for name in whole["recipe"]:
        for value in [*OTHERS, KeyError]:
            state(out, whole, name, value)
            for look in (describe_any, read_any):
                problems = unexpected(lambda look=look: look(kind, out))  # type: ignore[misc]
                found += [f"{look.__name__}, {name}: {value!r}: {problem}" for problem in problems]
    assert found == []


def test_two_fields_for_one_entry_of_a_batch_are_refused(made: Made, tmp_path: Path) -> None:
    out = Path(shutil.copytree(made("ragged images", "tensor")[1], tmp_path / "out"))
    whole = json.loads((out / "manifest.json").read_bytes())
    fields = whole["splits"]["train"]["fields"]
    next(field for field in fields if field["role"] == "labels")["role"] = "key"
    state(out, whole, "mask_padding", 0)
    with pytest.raises(FormatError, match="several fields would be 'key' of a batch"):
        read_any("ragged images", out)


def test_buckets_that_are_none_are_named(made: Made, tmp_path: Path) -> None:
    out = Path(shutil.copytree(made("images", "tensor")[1], tmp_path / "out"))
    whole = json.loads((out / "manifest.json").read_bytes())
    whole["recipe"]["fit"] = "bucket"
    state(out, whole, "buckets", {"24": [[1, 2, 3]]})
    with pytest.raises(FormatError, match=r"out: recipe\.buckets\.24: .*expected different pairs"):
        describe_dataset(out)
    state(out, whole, "buckets", {"24": [[24, 24]]})
    assert "buckets of 24: 24x24 0" in "\n".join(dataset_texts(out, describe_dataset(out)))


@pytest.mark.parametrize("name", ["task", "columns"])
def test_facts_of_another_table_that_are_none_are_named(
    name: str, made: Made, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(made("table", "tensor")[1], tmp_path / "out"))
    whole = json.loads((out / "manifest.json").read_bytes())
    state(out, whole, "table", {**whole["recipe"]["table"], name: 5})
    with pytest.raises(FormatError, match=rf"out: recipe\.table\.{name}: got 5"):
        read_like(out)


def test_options_of_another_version_are_refused_by_a_repair(made: Made, tmp_path: Path) -> None:
    out = Path(shutil.copytree(made("tokens", "tensor")[1], tmp_path / "out"))
    state(out, json.loads((out / "manifest.json").read_bytes()), "text", KeyError)
    recorded = Recorded(out, read_manifest(out), read_aside(out / "report.json"), Moved())
    with pytest.raises(ShardsError, match=r"not those of this version of prep \(KeyError: 'text'"):
        recorded.token_options()
