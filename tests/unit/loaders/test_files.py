"""Files written together: all are durable before one has its name, or none is there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loaders.format import files


def test_files_of_one_name_in_many_folders_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_OPEN_FILES", 3)
    synced = 0

    def fsync(descriptor: int, call: object = os.fsync) -> None:
        nonlocal synced
        synced += 1
        assert callable(call)
        call(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    work = tmp_path / "work"
    work.mkdir()
    wanted = {tmp_path / "out" / str(n % 2) / f"{n // 2}.json": bytes([n]) * n for n in range(8)}
    files.write_together({path: iter([data]) for path, data in wanted.items()}, work=work)
    assert {path: path.read_bytes() for path in wanted} == wanted
    assert not list(work.iterdir())
    assert synced > len(wanted)  # of the folders as well


def test_of_files_that_cannot_be_written_together_none_has_its_name(tmp_path: Path) -> None:
    def fails() -> Iterator[bytes]:
        yield b"begun"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        files.write_together({tmp_path / "one": b"1", tmp_path / "two": fails()}, work=tmp_path)
    assert not list(tmp_path.iterdir())
