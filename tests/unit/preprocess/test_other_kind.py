"""What makes another kind of dataset, into a folder that has one, is refused for that alone."""

import shutil
from pathlib import Path

import pytest

from tests.small_datasets import Made
from tests.token_commands import call

COMMANDS = {
    "images": ("images", "--sizes", "24"),
    "tokens": ("tokens", "--tokenizer"),
    "table": ("table", "--target", "y"),
}
NAMES = {"images": "images", "tokens": "tokens", "table": "a table"}


PAIRS = [(there, kind) for there in COMMANDS for kind in COMMANDS if there != kind]


@pytest.mark.parametrize(
    ("there", "kind", "more"),
    [
        (*pair, more)
        for pair in PAIRS
        for more in ((), ("--append",))
        if not more or pair[1] != "table"
    ],
)
def test_another_kind_is_named_and_no_option(
    there: str, kind: str, more: tuple[str, ...], made: Made, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(made(there, "tensor")[1], tmp_path / "out"))
    source, _ = made(kind, "tensor")
    command, *words = COMMANDS[kind]
    words += [source.parent / "tokenizer"] if kind == "tokens" else []
    result = call(command, source, out, *words, *more)
    assert result.exit_code == 1
    expected = f"holds a dataset of {NAMES[there]}, and this run makes one of {NAMES[kind]}"
    assert expected in result.stderr
    assert "not set there" not in result.stderr
