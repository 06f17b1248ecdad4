"""Runs that are killed at random moments, in great numbers: the same command must finish each.

    python -m tests.kills [--count 1000] [--seed 0]

Each try prepares a small dataset of some modality and container by the real command, in a process
group of its own that is killed (SIGKILL) at a random moment, up to three times one after the other
with different numbers of workers. Then the command is given once more, and the folder must hold,
byte for byte, what a run leaves that nobody stops, with nothing beside it.

A killed process loses no page that it gave to the kernel, so nothing waits for the disk here.
"""

import argparse
import ctypes
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from tests.crash.bomb import difference, in_child
from tests.recipes import read_tree
from tests.small_datasets import KINDS, prepare, write_source
from tests.sync import skip_sync

CONTAINERS = ("tensor", "zarr")
WORKERS = (1, 2, 3)
MOST_KILLS = 3
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of <linux/prctl.h>."""

_LOADED = (
    "cv2",
    "joblib",
    "simplejpeg",
    "zarr.storage",
    "pyarrow.compute",
    "tokenizers",
    "torch",
    "transformers.models.auto.tokenization_auto",
    "transformers.tokenization_utils_tokenizers",
    "preprocess.images.prepare",
    "preprocess.tokens.prepare",
    "preprocess.tables.prepare",
)


@dataclass(frozen=True, slots=True)
class Case:
    """A dataset to be prepared.

    Attributes:
        kind: One of `KINDS`.
        container: "tensor" or "zarr".
        source: What it is made of.
        whole: The dataset of a run that nobody stopped: name -> bytes.
        seconds: How long that took.
    """

    kind: str
    container: str
    source: Path
    whole: dict[str, bytes]
    seconds: float


def make_cases(folder: Path, kinds: Iterable[str] = KINDS) -> list[Case]:
    """Write the sources of some kinds, and prepare each once in every container."""
    for module in _LOADED:
        import_module(module)  # once, not in every child
    cases = []
    for kind in kinds:
        place = folder / kind.replace(" ", "_")
        place.mkdir()
        source = write_source(kind, place)
        for container in CONTAINERS:
            out = place / f"whole-{container}"
            begin = time.perf_counter()
            if in_child(partial(prepare, kind, container, source, out)):
                raise RuntimeError(f"{kind}, {container}: the run that nobody stops has failed")
            seconds = time.perf_counter() - begin
            cases.append(Case(kind, container, source, read_tree(out), seconds))
    return cases


def kill_after(seconds: float, work: Callable[[], None]) -> bool:
    """Do the work in a process group of its own and kill it; return whether it was still at it."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.fsync = skip_sync
        try:
            work()
        except BaseException:  # noqa: BLE001 - the exit code tells, whatever it was
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status:
                raise RuntimeError(f"a run ended by itself with status {status}")
            return False
        time.sleep(0.001)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it has not come to its group yet
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    _wait_for_group(child)
    return True


def _adopt_orphans() -> None:
    """Become the parent of whom a killed child leaves, where the system knows that (Linux).

    Otherwise they are the first process's, which may take a second to see that they have ended.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _wait_for_group(group: int) -> None:
    """Wait until the last process of a killed group is gone: a child that it was just starting.

    Until such a child is another program, it holds the lock of the folder.
    """
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)
    with suppress(ProcessLookupError):
        for _ in range(10_000):
            os.killpg(group, 0)
            time.sleep(0.001)


def try_one(case: Case, rng: random.Random, folder: Path) -> int:
    """Kill a run, finish it, and compare; return how many kills met it at work.

    Raises:
        RuntimeError: A run failed, or the folder does not hold what it should.
    """
    out = folder / "out"
    kills = 0
    for _ in range(rng.randint(1, MOST_KILLS)):
        words = ("--workers", str(rng.choice(WORKERS)))
        work = partial(prepare, case.kind, case.container, case.source, out, *words)
        kills += kill_after(rng.uniform(0, case.seconds), work)
    words = ("--workers", str(rng.choice(WORKERS)))
    if in_child(partial(prepare, case.kind, case.container, case.source, out, *words)):
        raise RuntimeError("the run after it failed")
    found = read_tree(out)
    if found != case.whole:
        raise RuntimeError(difference(found, case.whole))
    if left := [path.name for path in folder.iterdir() if path != out]:
        raise RuntimeError(f"beside the dataset there is {', '.join(left)}")
    return kills


def kill_runs(count: int, seed: int, folder: Path, kinds: Iterable[str] = KINDS) -> Counter[str]:
    """Try so often; return kills that met a run at work, by kind and container.

    Raises:
        AssertionError: Something was lost; the message says how to do it again.
    """
    _adopt_orphans()
    cases = make_cases(folder, kinds)
    counted: Counter[str] = Counter()
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        case = rng.choice(cases)
        place = folder / f"try-{number}"
        place.mkdir()
        try:
            counted[f"{case.kind}, {case.container}"] += try_one(case, rng, place)
        except RuntimeError as error:
            name = f"{case.kind}, {case.container}"
            raise AssertionError(f"seed {seed}, try {number}, {name}: {error}") from error
        shutil.rmtree(place)
    return counted


def main() -> None:
    """Kill runs from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counted = kill_runs(chosen.count, chosen.seed, Path(folder))
    kills = ", ".join(f"{name}: {number:,}" for name, number in sorted(counted.items()))
    print(f"{chosen.count:,} tries, {counted.total():,} runs killed at work ({kills}), none lost")


if __name__ == "__main__":
    main()
