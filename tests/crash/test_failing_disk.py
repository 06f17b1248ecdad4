"""A disk that fails at any write or sync gives one error with its cause, and loses nothing."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preprocess import ImageOptions, RunOptions, images_to_shards
from preprocess.errors import OutputError
from tests.crash.children import ROOT, SECONDS
from tests.recipes import read_tree
from tests.small_datasets import Made, asked_for, prepare
from tests.synthetic import write_image_tree
from tests.token_commands import call as invoke

OPTIONS = ImageOptions(sizes=((16, 16),))
RUN = RunOptions(shard_nbytes=2_000, workers=2, backend="threading")
FULL = {errno.ENOSPC, errno.EDQUOT}
LIMITED = """
import sys
from preprocess.cli import main
from tests.file_limit import limit_files
limit_files(int(sys.argv.pop(1)))
main()
"""
_ASIDE = {"report.json", "items.jsonl"}
"""Say when and how it was made."""


def content(out: Path) -> dict[str, bytes]:
    return {name: data for name, data in read_tree(out).items() if name not in _ASIDE}


def failing(call: str, code: int, allowed: int) -> Callable[..., Any]:
    """Return a call of the system that fails after so many times."""
    right, calls = getattr(os, call), iter(range(allowed))

    def fail(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise OSError(code, os.strerror(code))
        return right(*arguments)

    return fail


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EDQUOT, errno.ENOSPC, errno.EROFS])
def test_any_call_that_fails_is_one_error_and_the_same_command_goes_on(
    call: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "photos", tmp_path / "out"
    write_image_tree(source, ["ant", "bee"], 3)
    images_to_shards(source, tmp_path / "whole", OPTIONS, RUN)
    whole = content(tmp_path / "whole")
    failed = 0
    for allowed in range(0, 400, 5):
        said = None
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(call, code, allowed))
            try:
                images_to_shards(source, out, OPTIONS, RUN)
            except OutputError as error:
                said = str(error)
        if said is None:
            break
        failed += 1
        assert os.strerror(code) in said
        assert str(out) in said
        assert "bytes are free" in said
        # The disk itself has room, and so more is said to be wanted than was expected.
        assert ("bytes that were expected of it" in said) == (code in FULL)
        images_to_shards(source, out, OPTIONS, RUN)
        assert content(out) == whole
        shutil.rmtree(out)
    assert 3 < failed < 79


@pytest.mark.parametrize(("call", "code"), [("write", errno.ENOSPC), ("fsync", errno.EIO)])
@pytest.mark.parametrize(
    ("kind", "container", "step"),
    [
        ("images", "zarr", 30),
        ("tokens", "tensor", 30),
        ("shuffled tokens", "zarr", 40),
        ("table", "tensor", 12),
        ("list table", "zarr", 30),
    ],
)
def test_a_command_of_any_kind_says_which_folder_fails_and_goes_on(
    kind: str,
    container: str,
    step: int,
    call: str,
    code: int,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, whole = made(kind, container)
    out, failed = tmp_path / "out", 0
    words = asked_for(kind, container, source)
    for allowed in range(0, 1000, step):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(call, code, allowed))
            result = invoke(words[0], source, out, *words[1:], "--limit", "15", "--workers", "1")
        if result.exit_code == 0:
            break
        failed += 1
        assert result.exit_code == 1
        assert os.strerror(code) in result.stderr
        assert str(tmp_path) in result.stderr
        assert len(result.stderr.splitlines()) == 1
        prepare(kind, container, source, out, "--limit", "15")
        assert content(out) == content(whole)
        assert os.listdir(tmp_path) == ["out"]
        shutil.rmtree(out)
    assert 1 < failed < 1000 // step


@pytest.mark.parametrize("kind", ["images", "tokens", "table"])
def test_worker_processes_say_that_the_disk_is_full_and_the_same_command_goes_on(
    kind: str, made: Made, tmp_path: Path
) -> None:
    source, whole = made(kind, "tensor")
    out = tmp_path / "out"
    words = asked_for(kind, "tensor", source)
    words = [words[0], str(source), str(out), *words[1:], "--limit", "15", "--workers", "2"]
    largest = max(map(len, content(whole).values()))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(largest - 1), *words, "--backend", "loky"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "File too large" in done.stderr
    assert str(out) in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(out.glob(".prep/tmp-*"))
    prepare(kind, "tensor", source, out, "--limit", "15")
    assert content(out) == content(whole)


def test_a_folder_that_is_removed_meanwhile_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "photos", tmp_path / "out"
    write_image_tree(source, ["ant", "bee"], 30)
    finish = os.replace

    def removing(*arguments: Any) -> None:
        finish(*arguments)
        if str(arguments[1]).endswith(".npy"):
            shutil.rmtree(out, ignore_errors=True)

    monkeypatch.setattr(os, "replace", removing)
    with pytest.raises(OutputError, match=rf"^{out}"):
        images_to_shards(source, out, OPTIONS, RUN)


def test_a_process_whose_files_are_limited_leaves_no_module_cut_short(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("".join(f"x{n} = {n}\n" for n in range(1000)))
    script = "from tests.file_limit import limit_files; limit_files(1000); import long"
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, check=True)
    assert os.listdir(tmp_path) == ["long.py"]
