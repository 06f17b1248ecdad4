"""A run that was stopped, and is given again as another: the refusal says what differs."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from loaders.format.files import WORK
from preprocess.errors import OutputError
from preprocess.plan import Plan, RunOptions
from preprocess.removal import RUN
from preprocess.run import run
from tests.contents import recorded_items
from tests.recipes import (
    DigestRecipe,
    numbered_items,
    plan_digests,
    read_tree,
    row_nbytes,
    write_items,
)

_SHARD: Final = 2 * row_nbytes()


def planned(folder: Path, *, side: int = 2, fault: str = "", **options: Any) -> Plan:
    chosen = RunOptions(workers=1, **{"shard_nbytes": _SHARD, **options})
    return plan_digests(
        folder / "source", folder / "out", chosen, DigestRecipe(side=side, fault=fault)
    )


def carry_out(plan: Plan) -> None:
    run(plan, RunOptions(workers=1, container=plan.container))


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A folder with a source and with what a run over it left that was stopped."""
    write_items(tmp_path / "source", {**numbered_items(7), "train/007": b"fault"})
    with pytest.raises(RuntimeError, match="the recipe failed"):
        carry_out(planned(tmp_path, fault="exception"))
    assert (tmp_path / "out" / WORK / RUN).exists()
    return tmp_path


def touch(path: Path) -> None:
    os.utime(path, ns=(2 * 10**18, 2 * 10**18))


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda _: None, {"side": 3}, r"with other options: --side is 2 there, 3 here"),
        (lambda _: None, {"container": "zarr"}, r"options: --format is tensor there, zarr here"),
        (
            lambda _: None,
            {"shard_nbytes": 999_999},
            rf"options: --shard-size is {_SHARD} there, 999999 here",
        ),
        (lambda f: (f / "train/003").unlink(), {}, r"of other input: train/003 is gone"),
        (
            lambda f: write_items(f, {"train/003": b"a longer item than before"}),
            {},
            r"of other input: train/003 had \d+ bytes, has 25 now",
        ),
        (
            lambda f: write_items(f, {f"train/01{i}": b"x" for i in range(5)}),
            {},
            r"other input: train/010 is new, train/011 is new, train/012 is new and 2 more",
        ),
        (
            lambda f: (f / "train/003").rename(f / "train/030"),
            {},
            r"of other input: train/003 is gone, train/030 is new",
        ),
        (
            lambda f: touch(f / "train/003"),
            {},
            r"input files have other times than when it began: train/003 was written to since",
        ),
    ],
)
def test_another_run_over_an_unfinished_one_is_told_what_differs(
    change: Callable[[Path], Any], options: dict[str, Any], said: str, stopped: Path
) -> None:
    change(stopped / "source")
    before = read_tree(stopped / "out")

    with pytest.raises(OutputError, match=f"out: holds an unfinished run .*{said}; finish that"):
        carry_out(planned(stopped, **options))

    assert read_tree(stopped / "out") == before


def test_what_is_not_known_of_an_unfinished_run_is_not_guessed(stopped: Path) -> None:
    work = stopped / "out" / WORK
    for path in work.glob("*items.jsonl"):
        path.write_bytes(path.read_bytes()[:-20])
    touch(stopped / "source" / "train/003")
    with pytest.raises(OutputError, match="unfinished run with other input, or of another version"):
        carry_out(planned(stopped))

    begun = json.loads((work / RUN).read_text())
    (work / RUN).write_text(json.dumps({name: begun[name] for name in ("run_hash", "files")}))
    with pytest.raises(OutputError, match="unfinished run with other options or other input"):
        carry_out(planned(stopped))


def test_the_same_run_goes_on_and_leaves_no_note(stopped: Path) -> None:
    carry_out(planned(stopped))

    assert not (stopped / "out" / WORK).exists()


def test_receipts_of_earlier_versions_count_and_say_nothing_of_contents(stopped: Path) -> None:
    work = stopped / "out" / WORK
    receipts = sorted(work.glob("*.receipt.json"))
    for path in receipts:
        receipt = json.loads(path.read_bytes())
        assert [len(sums) for sums in receipt.pop("contents")] == [1] * receipt["items"]
        path.write_text(json.dumps(receipt))
    shards = {path: path.stat().st_ino for path in (stopped / "out").rglob("*.npy")}

    carry_out(planned(stopped))

    assert shards.items() <= {p: p.stat().st_ino for p in (stopped / "out").rglob("*.npy")}.items()
    known = [bool(item.contents) for item in recorded_items(stopped / "out")]
    assert known == [False] * 2 * len(receipts) + [True] * (8 - 2 * len(receipts))
