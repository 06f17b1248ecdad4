"""Power that fails at any moment: what was promised is durable, and the same command goes on."""

import json
import random
import shutil
from pathlib import Path
from typing import get_args

import pytest

from loaders.format.spec import Container
from tests.crash import test_append_stopped, test_stopped, test_table_killed
from tests.crash.children import output_of
from tests.crash.disk import Call, Disk
from tests.crash.power_loss import broken_laws
from tests.recipes import write_items
from tests.tokenizers_made import LINES, make_bpe

CASES = {
    "tensor:new": 30,
    "tensor:overwrite": 40,
    "tensor:append": 60,
    "zarr:new": 80,
    "zarr:overwrite": 90,
    "zarr:append": 200,
    "tokens:new": 100,
    "shuffled tokens:new": 300,
    "shuffled tokens:overwrite": 300,
    "table:new": 60,
    "table:overwrite": 60,
}
"""Every how many calls the power fails in the ordinary tests."""


@pytest.mark.parametrize(
    ("case", "stride", "seeds"),
    [
        *((case, stride, 1) for case, stride in CASES.items()),
        *(pytest.param(case, 1, 1, marks=pytest.mark.thorough) for case in CASES),
    ],
)
def test_what_a_power_cut_leaves_is_whole_or_finished_by_the_same_command(
    case: str, stride: int, seeds: int, tmp_path: Path
) -> None:
    source, kind = tmp_path / "source", case.partition(":")[0]
    words: list[str | Path] = []
    if case.endswith(":append"):
        (container,) = (name for name in get_args(Container) if name == kind)
        test_append_stopped.prepare(container, tmp_path)
    elif kind == "table":
        test_table_killed.write_source(source)
    elif kind in get_args(Container):
        write_items(source, test_stopped.items_of_two_splits())
    else:
        words = [make_bpe(tmp_path / "bpe")]
        source.mkdir()
        for name, lines in (("a", LINES[:12]), ("b", LINES[12:26])):
            text = "".join(json.dumps({"text": line}) + "\n" for line in lines)
            (source / f"{name}.jsonl").write_text(f"{text}not JSON\n", encoding="utf-8")

    cuts = output_of("power_loss", case, stride, seeds, source, tmp_path, *words)

    assert int(cuts) > 5


RUN: list[Call] = [
    ("mkdir", "out", ""),
    ("sync folder", "", ""),
    ("mkdir", "out/.prep", ""),
    ("open", "out/.prep/a", ""),
    ("sync", "out/.prep/a", "bytes"),
    ("hold", "out/.prep/a", "bytes"),
    ("rename", "out/.prep/a", "out/0.npy"),
    ("sync folder", "out", ""),
    ("open", "out/.prep/b", ""),
    ("sync", "out/.prep/b", "names"),
    ("hold", "out/.prep/b", "names"),
    ("rename", "out/.prep/b", "out/manifest.json"),
    ("sync folder", "out", ""),
    ("rmdir", "out/.prep", ""),
]
"""A run of one shard."""


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (1, "the name out is not durable"),
        (4, "out/.prep/a becomes out/0.npy before all of it is durable"),
        (7, "manifest: the name out/0.npy is not durable"),
        (9, "out/.prep/b becomes out/manifest.json before all of it is durable"),
        (12, "end: the name out/manifest.json is not durable"),
        (12, "rmdir out/.prep before the name of the manifest is durable"),
    ],
)
def test_a_call_that_is_left_out_is_found(missing: int, said: str, tmp_path: Path) -> None:
    assert list(broken_laws(RUN, {}, tmp_path)) == []
    assert said in "\n".join(broken_laws(RUN[:missing] + RUN[missing + 1 :], {}, tmp_path))


def test_what_goes_before_the_manifest_is_durable_is_found(tmp_path: Path) -> None:
    early = [*RUN[:12], ("unlink", "out/0.npy", ""), RUN[12]]
    assert any("before the name of the manifest" in law for law in broken_laws(early, {}, tmp_path))


def test_a_power_cut_leaves_what_was_synced_and_perhaps_more(tmp_path: Path) -> None:
    store, found = tmp_path / "store", set()
    store.mkdir()
    (store / "bytes").write_bytes(b"pixels")
    disk = Disk.holding({"old": b"old"}, store)
    for call in [*RUN[:7], ("unlink", "old", "")]:
        disk.take(call)
    for seed in range(300):
        root = tmp_path / "root"
        root.mkdir()
        disk.lose_power(0.5, random.Random(seed), store, root)
        files = {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        assert (root / "out").is_dir()
        assert files.get("old", b"old") == b"old"
        assert files.get("0.npy", b"pixels") == files.get("a", b"pixels") == b"pixels"
        found.add(frozenset(files))
        shutil.rmtree(root)
    assert found == {
        frozenset(names) for names in ((), ("old",), ("a",), ("old", "a"), ("0.npy",),
                                       ("old", "0.npy"))
    }  # fmt: skip
