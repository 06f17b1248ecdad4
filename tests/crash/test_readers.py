"""Who reads while others write: old maps keep their bytes, and what opens is whole or not there."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loaders import ChecksumError, MissingShardError, open_dataset
from loaders.format.files import MANIFEST
from tests.crash.children import ROOT
from tests.small_datasets import Made, flip_bit, prepare
from tests.token_commands import call

CALLS = ("replace", "unlink", "rmdir")
OTHER = {
    "images": ("--fit", "stretch"),
    "tokens": ("--no-eos",),
    "table": ("--shuffle", "6"),
}
"""Options that give other bytes."""


Copied = Callable[[str, str], tuple[Path, Path]]
"""Kind and container -> copies of a source and its dataset."""


class Reader:
    """The process of `tests.crash.reader`.

    Args:
        process: It, started.
        out: The dataset's folder.
    """

    def __init__(self, process: subprocess.Popen[str], out: Path) -> None:
        self._process = process
        self._manifest = out / MANIFEST
        self.first = self._answer()
        self.found: list[dict[str, str]] = []

    def _answer(self) -> dict[str, str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the reader ended with {self._process.wait()}"  # SIGBUS is -7
        answer: dict[str, str] = json.loads(line)
        return answer

    def _ask(self, what: str) -> dict[str, str]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._answer()

    def look(self) -> None:
        """Read by the old maps, and open anew."""
        assert self._ask("held") == self.first
        found = self._ask("fresh")
        assert ("nothing" in found) == (not self._manifest.exists()), found
        if found not in self.found:
            self.found.append(found)


@contextmanager
def reading(kind: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """Read before and after each call of this process that changes names."""
    lock = threading.RLock()

    def watched(right: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **options: Any) -> Any:
            with lock:
                reader.look()
                result = right(*arguments, **options)
                reader.look()
            return result

        return made

    with subprocess.Popen(
        [sys.executable, "-m", "tests.crash.reader", kind, str(out)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            reader = Reader(process, out)
            with monkeypatch.context() as patch:
                for name in CALLS:
                    patch.setattr(os, name, watched(getattr(os, name)))
                yield reader
            reader.look()
        finally:
            process.kill()


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Copied:
    """Return a function that copies a source and its dataset."""

    def copy(kind: str, container: str) -> tuple[Path, Path]:
        source, out = made(kind, container)
        folder = Path(shutil.copytree(source.parent, tmp_path / "copy"))
        return folder / source.name, folder / out.name

    return copy


WRITTEN = [("images", "tensor"), ("images", "zarr"), ("tokens", "tensor"), ("table", "tensor")]


@pytest.mark.parametrize(("kind", "container"), WRITTEN)
def test_while_a_dataset_is_overwritten_it_is_the_old_one_nothing_or_the_new_one(
    kind: str,
    container: str,
    copied: Copied,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, out = copied(kind, container)
    words = ("--overwrite", "--workers", "1", *OTHER[kind])
    with reading(kind, out, monkeypatch) as reader:
        prepare(kind, container, source, out, "--limit", "15", *words)

    old, nothing, new = reader.found
    assert old == reader.first
    assert list(nothing) == ["nothing"]
    assert new.keys() == old.keys()
    assert new != old


@pytest.mark.parametrize(("kind", "container"), WRITTEN)
def test_a_repair_leaves_the_maps_of_others_as_they_were(
    kind: str,
    container: str,
    copied: Copied,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, out = copied(kind, container)
    name = {"images": "image_24", "tokens": "tokens", "table": "record"}[kind]
    files = [path for path in out.glob(f"train/**/*{name}*/**/*") if path.is_file()]
    files += out.glob(f"train/*.{name}.npy")
    shard = max(files, key=lambda path: path.stat().st_size)
    flip_bit(shard, 8 * (128 + (shard.stat().st_size - 128) // 3))
    with reading(kind, out, monkeypatch) as reader:
        result = call("repair", out, source)
    assert result.exit_code == 0, result.stderr
    old, new = reader.found
    assert old == reader.first
    assert new != old


@pytest.mark.parametrize(("kind", "container"), WRITTEN[:3])
def test_while_a_dataset_grows_it_is_the_old_one_or_the_new_one(
    kind: str,
    container: str,
    copied: Copied,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, out = copied(kind, container)
    prepare(kind, container, source, out, "--overwrite")  # of all that is there
    photo = next(source.glob("train/ant/*.jpg"), source / "5.jsonl")
    shutil.copyfile(photo, photo.with_stem("zz"))
    with reading(kind, out, monkeypatch) as reader:
        prepare(kind, container, source, out, "--append", "--workers", "1")
    old, new = reader.found
    assert old == reader.first
    assert new["train"] != old["train"]


@pytest.mark.parametrize("kind", OTHER)
def test_the_same_command_again_changes_nothing_for_anybody(
    kind: str,
    copied: Copied,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, out = copied(kind, "tensor")
    with reading(kind, out, monkeypatch) as reader:
        prepare(kind, "tensor", source, out, "--limit", "15")
    assert reader.found == [reader.first]


def test_who_has_opened_and_not_touched_it_never_takes_new_bytes_for_old_ones_where_it_verifies(
    copied: Copied,
) -> None:
    source, out = copied("images", "tensor")
    data = open_dataset(out, size=24, verify=True)
    prepare("images", "tensor", source, out, "--limit", "15", "--overwrite", *OTHER["images"])
    with pytest.raises((ChecksumError, MissingShardError)):
        data.__getitems__([0, 1])
