"""`--split NAME=SHARE ...`: the shares of the splits in one option, for every command."""

import shutil
from pathlib import Path

import pytest

from loaders.format.spec import read_manifest
from tests.recipes import read_tree
from tests.small_datasets import Made, asked_for
from tests.token_commands import call


@pytest.mark.parametrize("kind", ["ragged images", "tokens", "table"])
def test_both_ways_to_give_shares_make_the_same_dataset(
    kind: str, made: Made, tmp_path: Path
) -> None:
    source, _ = made(kind, "tensor")
    words = list(asked_for(kind, "tensor", source))
    place = words.index("--validation")
    command, before, after = words[0], words[1:place], words[place + 2 :]
    out, found = tmp_path / "out", []
    for shares in (
        ["--validation", "0.3", "--test", "0.3"],
        ["--split", "train=0.4", "validation=0.3", "test=0.3"],
    ):
        result = call(command, source, out, *before, *shares, *after)
        assert result.exit_code in {0, 3}, result.stderr
        assert list(read_manifest(out).splits) == ["train", "validation", "test"]
        tree = read_tree(out)
        found.append({n: data for n, data in tree.items() if n != "report.json"})
        shutil.rmtree(out)
    assert found[0] == found[1]
    result = call(command, source, out, *before, *after, "--split", "test=0.2", "--test", "0.1")
    assert result.exit_code == 2
    assert "--split and --test: give one of them" in " ".join(result.stderr.split())
    assert not out.exists()
