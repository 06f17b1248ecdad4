"""A disk that fails at any write or sync gives one error with its cause, and loses nothing."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from preprocess import ImageOptions, RunOptions, images_to_shards
from preprocess.errors import OutputError
from tests.recipes import read_tree
from tests.synthetic import write_image_tree

OPTIONS = ImageOptions(sizes=((16, 16),))
RUN = RunOptions(shard_nbytes=2_000, workers=2, backend="threading")
FULL = {errno.ENOSPC, errno.EDQUOT}
_ASIDE = {"report.json", "items.jsonl"}
"""Say when and how it was made."""


def content(out: Path) -> dict[str, bytes]:
    return {name: data for name, data in read_tree(out).items() if name not in _ASIDE}


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EDQUOT, errno.ENOSPC, errno.EROFS])
def test_any_call_that_fails_is_one_error_and_the_same_command_goes_on(
    call: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "photos", tmp_path / "out"
    write_image_tree(source, ["ant", "bee"], 3)
    images_to_shards(source, tmp_path / "whole", OPTIONS, RUN)
    whole = content(tmp_path / "whole")
    right = getattr(os, call)
    failed = 0
    for allowed in range(0, 400, 5):
        calls = iter(range(allowed))

        def failing(*arguments: Any, calls: Any = calls) -> Any:
            if next(calls, None) is None:
                raise OSError(code, os.strerror(code))
            return right(*arguments)

        said = None
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
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
