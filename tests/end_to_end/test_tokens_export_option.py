"""`prep tokens --export`: another trainer's files at once, and again without harm."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from loaders import SelectionError, open_dataset
from preprocess.cli import prep
from tests.tokenizers_made import make_bpe


@pytest.fixture
def source(tmp_path: Path) -> Path:
    lines = [json.dumps({"text": f"document {number}"}) for number in range(5)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    make_bpe(tmp_path / "made")
    return tmp_path / "a.jsonl"


def test_the_files_are_written_beside_the_dataset_once(source: Path, tmp_path: Path) -> None:
    command = ["tokens", str(source), str(tmp_path / "out")]
    command += ["--tokenizer", str(tmp_path / "made"), "--export", "nanogpt"]
    for _ in range(2):
        result = CliRunner().invoke(prep, command)
        assert result.exit_code == 0, result.output
        assert f"nanogpt: the files are in {tmp_path / 'out.nanogpt'}" in result.output
    exported = np.fromfile(tmp_path / "out.nanogpt" / "train.bin", "<u2")
    assert np.array_equal(exported, np.load(tmp_path / "out/train/00000.tokens.npy"))
    with pytest.raises(SelectionError, match=r"holds tokens; open it with loaders\.open_tokens"):
        open_dataset(tmp_path / "out")


def test_only_documents_can_be_exported(source: Path, tmp_path: Path) -> None:
    command = ["tokens", str(source), str(tmp_path / "out"), "--tokenizer", str(tmp_path / "made")]
    command += ["--layout", "packed", "--length", "8", "--export", "nanogpt"]
    result = CliRunner().invoke(prep, command)
    assert result.exit_code == 2
    assert "--export: only layout stream" in result.output
    assert not (tmp_path / "out").exists()
