"""The benchmarks work: tiny runs that print their ratios and never judge a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import (
    blocks_rate,
    check_rate,
    cold_rate,
    durability_cost,
    gather_rate,
    inputs,
    kernel_rate,
    memory,
    open_time,
    peers,
    short_job,
    tokens_peers,
)
from tests.benchmarks.rounds import alternate, paired_ratios, report, show


def test_contenders_take_turns_and_every_run_is_kept() -> None:
    called: list[str] = []
    contenders = {
        "a": lambda: called.append("a"),
        "b": lambda: called.append("b"),
        "own": lambda: 2.0,
    }
    runs = alternate(contenders, 3, between=lambda: called.append("-"))
    assert called == ["-", "a", "-", "b", "-", "-", "b", "-", "a", "-", "-", "-", "a", "-", "b"]
    assert runs["own"] == [2.0, 2.0, 2.0]
    assert [len(seconds) for seconds in runs.values()] == [3, 3, 3]


def test_ratios_are_paired_by_round_and_reported_with_their_range() -> None:
    runs = {"ours": [1.0, 2.0, 4.0], "peer": [2.0, 2.0, 16.0]}
    assert paired_ratios(runs, "peer", "ours") == [2.0, 1.0, 4.0]
    lines = report("title", runs, count=10, unit="photos", reference="ours")
    assert "5.0 photos/s  time / ours: 1.00 (1.00 to 1.00)" in lines[1]
    assert "time / ours: 2.00 (1.00 to 4.00)  seconds: 2.000 2.000 16.000" in lines[2]


def test_durability_cost_turns_off_what_it_names_and_puts_it_back(tmp_path: Path) -> None:
    import os

    before = os.fsync
    runs = durability_cost.measure(None, tmp_path, count=3, photo_size=(96, 64), rounds=1)
    assert sorted(runs) == sorted(durability_cost.WITHOUT)
    assert os.fsync is before
    show(report("tiny", runs, count=3, unit="photos", reference=durability_cost.OURS))


def test_check_rate_reads_all_files_and_refuses_a_bad_one(tmp_path: Path) -> None:
    dataset = check_rate.prepare(None, tmp_path, 3, (96, 64))
    runs, nbytes = check_rate.measure(dataset, workers=1, rounds=1)
    assert nbytes > 3 * 3 * sum(size**2 for size in check_rate.SIZES)
    show(report("tiny", runs, count=nbytes // 1_000_000, unit="MB", reference=check_rate.CAT))
    (dataset / "train/00000.image_512.npy").unlink()
    with pytest.raises(RuntimeError, match="missing"):
        check_rate.measure(dataset, workers=1, rounds=1)


def test_given_photos_are_copied_and_too_few_are_refused(tmp_path: Path) -> None:
    painted = inputs.usable_photos(None, tmp_path / "a", 5, (32, 24))
    copied = inputs.usable_photos(painted, tmp_path / "b", 4, (1, 1))
    originals = {path.read_bytes() for path in painted.iterdir()}
    assert len(list(copied.iterdir())) == 4
    assert {path.read_bytes() for path in copied.iterdir()} <= originals
    with pytest.raises(ValueError, match="5 photos, 6 are needed"):
        inputs.usable_photos(painted, tmp_path / "c", 6, (1, 1))


def test_the_kernels_of_ours_and_of_pillow_make_the_same_pictures(tmp_path: Path) -> None:
    import numpy as np

    (photo,) = inputs.usable_photos(None, tmp_path, 1, (160, 120)).iterdir()
    for ours, pillow in zip(
        peers.pictures_ours(photo, (64, 32)), peers.pictures_pillow(photo, (64, 32)), strict=True
    ):
        difference = np.abs(np.asarray(ours, np.int16) - np.asarray(pillow, np.int16))
        assert difference.max() <= 3


def test_kernel_rate_measures_every_contender(tmp_path: Path) -> None:
    setting = kernel_rate.Setting(count=4, photo_size=(160, 120), sizes=(16, 32), rounds=1)
    runs = kernel_rate.measure(setting, tmp_path)
    assert len(runs) == 4
    show(report("tiny", runs, count=4, unit="photos", reference="prep images"))


def test_short_job_measures_whole_commands_and_their_imports(tmp_path: Path) -> None:
    source = inputs.usable_photos(None, tmp_path, 2, (64, 48))
    runs = short_job.measure(source, tmp_path, sizes=(16,), workers=1, rounds=1)
    show(report("tiny", runs, count=2, unit="photos", reference="prep images"))
    out = tmp_path / "imports"
    imports = short_job.import_microseconds(inputs.prep_images(source, out, (16,)))
    assert imports["ours"] > 0
    assert imports["numpy"] > 0


def test_a_failing_command_shows_its_output() -> None:
    with pytest.raises(RuntimeError, match=r"exit code 3\nsaid"):
        inputs.run_command([sys.executable, "-c", "print('said'); raise SystemExit(3)"])


def test_anonymous_memory_counts_children_and_not_the_page_cache(tmp_path: Path) -> None:
    mapped = tmp_path / "mapped"
    mapped.write_bytes(bytes(60_000_000))
    child = (
        "import mmap, sys\n"
        "held = bytearray(b'x') * 40_000_000\n"
        f"file = open({str(mapped)!r}, 'rb')\n"
        "view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
        "read = sum(view[i] for i in range(0, len(view), 4096))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        tree = memory.process_tree(process.pid)
        nbytes = sum(map(memory.anonymous_nbytes, tree))
        process.communicate(b"")
    assert len(tree) == 2
    assert 40_000_000 < nbytes < 80_000_000
    assert memory.anonymous_nbytes(process.pid) == 0


def test_peak_memory_of_a_failing_command_is_refused() -> None:
    with pytest.raises(RuntimeError, match="exit code 3"):
        memory.peak_nbytes([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_command_whose_memory_is_sampled_runs_in_the_folder_given(tmp_path: Path) -> None:
    memory.peak_nbytes([sys.executable, "-c", "open('made', 'w').close()"], cwd=tmp_path)
    assert (tmp_path / "made").exists()


def test_a_tool_of_megatron_is_run_from_its_repository_with_the_end_of_documents(
    tmp_path: Path,
) -> None:
    import json

    tool = tmp_path / "clone" / "tools" / "preprocess_data_fast.py"
    tool.parent.mkdir(parents=True)
    tool.write_text(
        "import json, sys\n"
        "from typing import override\n"
        "prefix = sys.argv[sys.argv.index('--output-prefix') + 1]\n"
        "json.dump([sys.path[0], *sys.argv], open(prefix + '.json', 'w'))\n"
    )
    name = "Megatron preprocess_data_fast"
    setting = tokens_peers.Setting(
        text=tmp_path / "text.jsonl",
        tokenizer=tmp_path / "tokenizer",
        pythons={name: Path(sys.executable)},
        repositories={name: tmp_path / "clone"},
    )
    out = tmp_path / "out"
    tokens_peers.run_job(setting, name, out)
    path, run, *options = json.loads((out / "ids.json").read_text())
    assert (path, run) == (str(tmp_path / "clone"), str(tool))
    assert options[options.index("--input") + 1] == str(setting.text)
    assert options[options.index("--tokenizer-model") + 1] == str(setting.tokenizer)
    assert {"--append-eod", "--use-gigatoken"} <= set(options)


def test_memory_and_tokens_of_contenders_are_shown_beside_ours() -> None:
    ours, peer = tokens_peers.summary(
        {tokens_peers.OURS: 1_000, "peer": 2_000},
        {tokens_peers.OURS: 4_000_000, "peer": 10_000_000},
    )
    assert "1,000 tokens  peak 4 MB anonymous memory, 1.00 times that of prep tokens" in ours
    assert "2,000 tokens  peak 10 MB anonymous memory, 2.50 times that of prep tokens" in peer


def test_the_best_setting_of_litdata_is_compared_with_ours() -> None:
    runs = {
        blocks_rate.OURS: [1.0, 1.0, 2.0],
        "LitData, slow": [9.0, 9.0, 9.0],
        "LitData, quick": [6.0, 7.0, 10.0],
    }
    (line,) = blocks_rate.best_of_litdata(runs)
    assert "6.0 times (5.0 to 7.0) the rate of LitData's best: LitData, quick" in line
    assert blocks_rate.best_of_litdata({blocks_rate.OURS: [1.0]}) == []


def test_a_python_that_cannot_run_litdata_is_refused(tmp_path: Path) -> None:
    _, single = blocks_rate.prepare(tmp_path, 1_000, 1)
    with pytest.raises(RuntimeError, match="exit code 1"):
        blocks_rate.litdata_contenders(Path("/bin/false"), single, 1, batch_size=4, block_size=64)


def test_peak_memory_of_a_tiny_job_is_measured(tmp_path: Path) -> None:
    source = inputs.usable_photos(None, tmp_path, 2, (64, 48))
    peak = memory.peak_nbytes(inputs.prep_images(source, tmp_path / "out", (16,)))
    show([f"tiny: {peak / 1e6:.0f} MB"])


def test_gather_rate_measures_every_contender(tmp_path: Path) -> None:
    dataset = gather_rate.prepare(tmp_path, 20, 1_000_000)
    runs, count = gather_rate.measure(dataset, batch_size=8, rounds=2)
    assert count == 20
    show(report("tiny", runs, count=count, unit="images", reference="loaders.Loader"))


def test_open_time_measures_a_dataset_of_many_shards(tmp_path: Path) -> None:
    dataset = open_time.prepare(tmp_path, 12)
    opened, first = open_time.measure(dataset, 3)
    assert len(opened) == len(first) == 3
    assert len(list(dataset.glob("train/*.npy"))) == 12 * 3
    seconds, with_first, grown, peak = open_time.measure_fresh(dataset)
    assert 0 < seconds <= with_first
    assert 0 <= grown < peak
    show([f"tiny: open {opened} ms, with first sample {first} ms"])


@pytest.mark.parametrize(
    "name", ["kernel_rate", "short_job", "memory", "gather_rate", "open_time", "tokens_peers"]
)
def test_a_benchmark_runs_from_the_command_line(name: str) -> None:
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "usage" in shown


def test_cold_rate_measures_every_contender_from_forgotten_files(tmp_path: Path) -> None:
    dataset = gather_rate.prepare(tmp_path, 8, 500_000)
    runs, count = cold_rate.measure(dataset, batch_size=3, window=4, rounds=1)
    assert len(runs) == 6
    show(report("tiny", runs, count=count, unit="images", reference="sequential read"))
