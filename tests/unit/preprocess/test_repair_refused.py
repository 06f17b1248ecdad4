"""`prep repair` where something else is there than was checked: all is left as it is."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import preprocess.repair
from preprocess import TableOptions, table_to_shards
from preprocess.cli import prep
from preprocess.errors import OutputError, SourceError
from preprocess.output import hold
from preprocess.repair import repair_dataset
from tests.recipes import read_tree
from tests.small_datasets import Made


def copied(made: Made, tmp_path: Path) -> tuple[Path, Path]:
    """Return a source and a dataset of it that may be changed."""
    source, _ = made("tokens", "tensor")
    folder = Path(shutil.copytree(source.parent, tmp_path / "copy"))
    return folder / source.name, folder / "out"


def test_a_link_to_a_folder_whose_name_begins_alike_leads_out(made: Made, tmp_path: Path) -> None:
    source, out = copied(made, tmp_path)
    other = out.with_name("out2")
    other.mkdir()
    (out / "train").rename(other / "train")
    (out / "train").symlink_to(other / "train")
    for path in (other / "train").iterdir():
        path.write_bytes(b"of another dataset")
    before = read_tree(other)
    with pytest.raises(OutputError, match=r"leads out of .*/out by a link"):
        repair_dataset(out, source)
    assert read_tree(other) == before


def test_items_that_all_became_unreadable_are_another_source(made: Made, tmp_path: Path) -> None:
    source, out = copied(made, tmp_path)
    for path in (path for path in source.rglob("*") if path.is_file()):
        path.write_bytes(b"\xff" * path.stat().st_size)
    shard = next(path for path in sorted(out.rglob("train/*")) if path.is_file())
    shard.write_bytes(b"bad")
    before = read_tree(out)
    with pytest.raises(SourceError, match="gives other bytes for shard 0 of train"):
        repair_dataset(out, source)
    assert read_tree(out) == before


def test_a_dataset_that_was_replaced_since_its_check_is_left(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = copied(made, tmp_path)
    next(path for path in sorted(out.rglob("train/*")) if path.is_file()).write_bytes(b"bad")
    _, other = made("table", "tensor")

    def replaced(root: Path) -> Any:
        shutil.rmtree(root)
        shutil.copytree(other, root)
        return hold(root)

    monkeypatch.setattr(preprocess.repair, "hold", replaced)
    with pytest.raises(OutputError, match="another run has replaced it"):
        repair_dataset(out, source)
    assert read_tree(out) == read_tree(other)
    assert not os.path.lexists(out / ".prep")


@pytest.mark.parametrize("damaged", [False, True])
def test_what_is_not_there_is_refused_before_anything_is_read(
    damaged: bool, made: Made, tmp_path: Path
) -> None:
    source, out = copied(made, tmp_path)
    if damaged:
        next(path for path in sorted(out.rglob("train/*")) if path.is_file()).unlink()
    words = [str(out), str(tmp_path / "typo")]

    done = CliRunner().invoke(prep, ["repair", *words])
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr == f"Error: {words[1]}: not found; give what {out} was made from\n"

    words[1] = str(source)
    done = CliRunner().invoke(prep, ["repair", *words, "--masks", str(tmp_path / "masks")])
    assert done.exit_code == 1
    assert "masks: not found; give --masks as it is now, or leave it out" in done.stderr

    assert CliRunner().invoke(prep, ["repair", *words]).exit_code == 0


@pytest.mark.parametrize("framed", [False, True])
def test_another_table_is_refused_as_that_whatever_its_columns_are(
    tmp_path: Path, framed: bool
) -> None:
    out = tmp_path / "out"
    table = {"x": [1, 2, 3], "y": ["a", "b", "a"]}
    (tmp_path / "t.csv").write_text("x,y\n1,a\n2,b\n3,a\n")
    (tmp_path / "other.csv").write_text("q,r\n1,a\n")
    source, other = (table, {"q": [1]}) if framed else (tmp_path / "t.csv", tmp_path / "other.csv")
    table_to_shards(source, out, TableOptions(target="y", categorical=("x",)))
    shard = out / "train" / "00000.record.npy"
    good = shard.read_bytes()
    shard.write_bytes(b"bad")
    with pytest.raises(SourceError, match=r"not what .*out was made from: names or sizes differ"):
        repair_dataset(out, other)
    assert shard.read_bytes() == b"bad"
    repair_dataset(out, source)
    assert shard.read_bytes() == good
