"""`prep tokens` stopped anywhere: what is left, and that the same command finishes it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loaders.format.files import WORK
from preprocess.plan import RunOptions
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.prepare import tokens_to_shards
from tests.crash.children import SECONDS, output_of
from tests.recipes import read_tree
from tests.tokenizers_made import LINES, make_bpe
from tests.waiting import until

PREP = [sys.executable, "-c", "from preprocess.cli import prep; prep()"]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose texts give several shards in each of two splits, and a bad line."""
    folder = tmp_path_factory.mktemp("source")
    for name, lines in (("a", LINES[:12]), ("b", LINES[12:26]), ("c", LINES[:4])):
        text = "".join(json.dumps({"text": line}) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(f"{text}not JSON\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "cases",
    [
        ["stream:tensor:5", "stream:zarr:41", "packed:tensor:19", "packed:zarr:53"],
        *(
            pytest.param([f"{layout}:{container}:1"], marks=pytest.mark.thorough)
            for layout in ("stream", "packed")
            for container in ("tensor", "zarr")
        ),
    ],
)
def test_a_run_that_is_killed_at_any_call_is_finished_by_the_same_command(
    cases: list[str], bpe: Path, source: Path, tmp_path: Path
) -> None:
    calls = output_of("token_run", "kill", bpe, source, tmp_path, *cases).split()
    assert len(calls) == len(cases)
    assert all(int(number) > 60 for number in calls)


@pytest.mark.parametrize(("layout", "container"), [("stream", "tensor"), ("packed", "zarr")])
def test_a_disk_that_is_full_at_any_byte_gives_one_error_and_keeps_finished_shards(
    layout: str, container: str, bpe: Path, source: Path, tmp_path: Path
) -> None:
    # The last size lets all shards pass, and not the copy of tokenizer.json.
    sizes = [0, 1, 127, 129, 300, 700, (bpe / "tokenizer.json").stat().st_size - 1]
    words = ["limit", bpe, source, tmp_path / "out", layout, container, *map(str, sizes)]
    found = [json.loads(line) for line in output_of("token_run", *words).splitlines()]
    expected = read_tree(tmp_path / "out")
    assert [one["nbytes"] for one in found] == sizes
    for one in found:
        out = tmp_path / f"out{one['nbytes']}"
        assert str(out) in one["message"]
        assert "File too large" in one["message"]
        assert not [name for name in one["left"] if name.startswith("tmp-")]
        assert not (out / "manifest.json").exists()
    kept = [len([name for name in one["left"] if "receipt" in name]) for one in found]
    assert kept[0] == 0
    assert kept[-1] > 3
    options = TokenOptions(
        tokenizer=str(bpe),
        engine="transformers",
        layout=layout,
        length=None if layout == "stream" else 32,
        validation=0.3,
    )
    run = RunOptions(container=container, shard_nbytes=900, workers=1)
    for nbytes, receipts in list(zip(sizes, kept, strict=True))[-3:]:
        report = tokens_to_shards(source, tmp_path / f"out{nbytes}", options, run)
        assert (report.made < sum(report.samples.values())) == (receipts > 0)
        assert read_tree(tmp_path / f"out{nbytes}") == expected


def test_an_interrupt_keeps_finished_shards_and_the_same_command_goes_on(
    bpe: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts").mkdir()
    for number in range(60):
        text = f"{number} {' '.join(LINES)} " * 12
        (tmp_path / f"texts/{number:02d}.txt").write_text(text, encoding="utf-8")
    words = [*PREP, "tokens", "texts", "out", "--tokenizer", bpe, "--engine", "transformers"]
    words += ["--shard-size", "20kB", "--workers", "1"]
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        until(lambda: any((tmp_path / "out").glob("train/*.tokens.npy")), run)
        os.killpg(run.pid, signal.SIGINT)
        printed, said = run.communicate(timeout=SECONDS)
    assert (run.returncode, printed) == (130, "")
    assert said == "interrupted; finished shards are kept, the same command goes on from there\n"
    assert not (tmp_path / "out/manifest.json").exists()
    assert not list((tmp_path / "out" / WORK).glob("tmp-*"))
    kept = len(list((tmp_path / "out" / WORK).glob("*.receipt.json")))
    options = TokenOptions(tokenizer=str(bpe), engine="transformers")
    run_options = RunOptions(shard_nbytes=20_000, workers=2)
    report = tokens_to_shards(tmp_path / "texts", tmp_path / "out", options, run_options)
    assert kept > 0
    assert 0 < report.made < sum(report.samples.values()) == 60
    tokens_to_shards(tmp_path / "texts", tmp_path / "whole", options, run_options)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "whole")
