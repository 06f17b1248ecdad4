"""Files of tables that end the process which reads them, or hold it up: left out by name."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from preprocess.check import check_dataset
from preprocess.repair import repair_dataset
from preprocess.tables.work import work_folder
from tests.crash.children import ROOT, SECONDS
from tests.crash.table_fatal import prepare
from tests.recipes import read_tree

SAID = {
    "segv": "ended the process that prepared it (SIGSEGV(-11))",
    "kill": "ended the process that prepared it (SIGKILL(-9))",
    "exit": "ended the process that prepared it (EXIT(7))",
    "sleep": "not done within 2 s (--item-timeout)",
    "slow": "not done within 1 s (--item-timeout)",
}


def write_source(folder: Path, *, bad: bool = True) -> int:
    """Write some files; return the size of the one that ends who reads it."""
    folder.mkdir()
    for name in "acd":
        rows = "".join(f"{n % 3},{n},{name}{n % 5}\n" for n in range(30))
        (folder / f"{name}.csv").write_text(f"y,n,w\n{rows}")
    path = folder / "b.csv"
    if bad:
        path.write_text("y,n,w\n1,1,only\n")
    return len(b"y,n,w\n1,1,only\n")


def dies(how: str, source: Path, out: Path, nbytes: int) -> int:
    """Run to the end that the file puts to it; return its status."""
    words = [how, str(nbytes), str(source), str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.table_fatal", *words],
        cwd=ROOT,
        timeout=SECONDS,
        check=False,
        capture_output=True,
    )
    return done.returncode


def values(out: Path) -> dict[str, bytes]:
    """Return the dataset but for what knows of the file that it lacks."""
    kept = ("train/", "table/")
    return {name: data for name, data in read_tree(out).items() if name.startswith(kept)}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("good")
    write_source(folder / "source", bad=False)
    prepare("", 0, folder / "source", folder / "out")
    return values(folder / "out")


@pytest.mark.parametrize("how", ["segv", "exit", "kill"])
def test_a_run_dies_once_and_the_next_one_goes_on_without_the_file(
    how: str, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    nbytes = write_source(source)
    status = {"segv": -signal.SIGSEGV, "exit": 7, "kill": -signal.SIGKILL}[how]
    assert dies(how, source, out, nbytes) == status

    report = prepare(how, nbytes, source, out)

    assert dict(report.skipped) == {"b.csv": SAID[how]}
    assert report.too_many_skipped
    assert values(out) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


@pytest.mark.parametrize("how", ["segv", "exit", "sleep", "slow"])
@pytest.mark.parametrize("workers", [1, 2])
def test_with_a_limit_of_time_each_file_is_tried_before(
    how: str, workers: int, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    nbytes = write_source(source)
    timeout = 1.0 if how == "slow" else 2.0

    report = prepare(how, nbytes, source, out, workers=workers, timeout=timeout)

    assert dict(report.skipped) == {"b.csv": SAID[how]}
    assert values(out) == expected
    assert not work_folder(out).exists()


def test_a_run_that_somebody_killed_loses_no_file(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    nbytes = write_source(source)
    assert dies("once", source, out, nbytes) == -signal.SIGKILL  # as if somebody had
    assert [*work_folder(out).glob("in-work-*")]

    report = prepare("once", nbytes, source, out)

    assert list(report.skipped) == []
    assert sum(report.samples.values()) == 91
    assert not work_folder(out).exists()


def test_what_was_found_out_outlives_the_run_that_found_it(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    nbytes = write_source(source)
    assert dies("segv", source, out, nbytes) != 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("preprocess.tables.scan.write_spill", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare("segv", nbytes, source, out)
    assert json.loads((work_folder(out) / "fatal.json").read_text())["items"] == [
        ["b.csv", 0, SAID["segv"]]
    ]
    assert not [*work_folder(out).glob("in-work-*")]
    # No file is tried again: this one would be good now.
    assert dict(prepare("", nbytes, source, out).skipped) == {"b.csv": SAID["segv"]}
    assert not work_folder(out).exists()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_repair_leaves_out_the_same_files(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    nbytes = write_source(source)
    prepare("exit", nbytes, source, out, timeout=60)
    before = read_tree(out)
    shard = next((out / "train").iterdir())
    shard.write_bytes(b"x" * len(shard.read_bytes()))

    repair_dataset(out, source, workers=1)

    assert read_tree(out) == before
    assert check_dataset(out, full=True).problems == ()
