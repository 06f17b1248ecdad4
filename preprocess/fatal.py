"""Items that end or hold up the process that prepares them: found out, left out by name, kept."""

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from loaders.errors import FormatError, MissingShardError
from loaders.format.files import WORK, read_json, to_json, write_atomically
from preprocess.in_work import Note, read_notes, remove_notes
from preprocess.interrupts import end_with_parent
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.task import ShardTask

FATAL: Final = "fatal.json"
"""In the work folder: the items that this run goes on without."""

_ENDED: Final = "ended the process that prepared it"
_HUNG: Final = "not done within"

_SLACK: Final = 2
"""An item that is tried alone gets so many times its time: what it needs may not be loaded yet."""

_LOOKS: Final = 8
"""How often an item is looked at within its time."""


def is_fatal(reason: str) -> bool:
    """Say whether an item was left out because it ended or held up a process."""
    return reason.startswith((_ENDED, _HUNG))


def without_fatal(tasks: Sequence[ShardTask], out: Path, timeout: float | None) -> list[ShardTask]:
    """Return tasks that leave out what ended a process of this run before.

    What was in work when a process died is tried in a process of its own, item by item: only what
    ends that too is left out, so that whoever kills a run loses no item by it.

    Args:
        tasks: What is left to do, all of one run.
        out: The output folder.
        timeout: Seconds for an item; None for any time.
    """
    if not tasks:
        return list(tasks)
    work, run_hash = out / WORK, tasks[0].run_hash
    suspects = [
        Suspect(
            item=item,
            work=partial(_prepare, replace(task, items=(item,), refused={})),
            load=partial(_prepare, replace(task, items=(), refused={})),
        )
        for task, item in _suspects(tasks, read_notes(work, run_hash))
    ]
    with known_fatal(work, run_hash) as known:
        known.update(try_alone(suspects, known, timeout))
    remove_notes(work)
    by_place = {(item.key, item.start): reason for item, reason in known.items()}
    return [_leaving_out(task, by_place) for task in tasks] if by_place else list(tasks)


def leave_out(task: ShardTask, skipped: Mapping[str, str]) -> ShardTask:
    """Return a task that leaves out what a finished run has left out: key -> reason."""
    refused = {i: skipped[i.key] for i in task.items if is_fatal(skipped.get(i.key, ""))}
    return replace(task, refused=refused)


def _leaving_out(task: ShardTask, places: Mapping[tuple[str, int], str]) -> ShardTask:
    refused = {i: places[i.key, i.start] for i in task.items if (i.key, i.start) in places}
    return replace(task, refused=refused)


@contextmanager
def known_fatal(work: Path, run_hash: str) -> Iterator[dict[Item, str]]:
    """Yield the items that a run goes on without, and why; what is added is kept for later runs.

    Args:
        work: The work folder.
        run_hash: Of the run.

    Raises:
        OSError: It cannot be written.
    """
    known = _read_fatal(work, run_hash)
    before = len(known)
    yield known
    if len(known) > before:
        items = [[item.key, item.start, reason] for item, reason in known.items()]
        write_atomically(work / FATAL, to_json({"run_hash": run_hash, "items": items}))


def _read_fatal(work: Path, run_hash: str) -> dict[Item, str]:
    try:
        entry = read_json(work / FATAL)
        if entry["run_hash"] != run_hash:
            return {}
        return {Item(key, 0, 0, start=start): str(why) for key, start, why in entry["items"]}
    except (MissingShardError, FormatError, KeyError, TypeError, ValueError):
        return {}  # found out again if need be


def _suspects(tasks: Sequence[ShardTask], notes: Sequence[Note]) -> list[tuple[ShardTask, Item]]:
    """Return what was in work, each item once, the likeliest first."""
    by_place = {(task.split, task.index): task for task in tasks}
    found: dict[tuple[str, int], tuple[int, ShardTask, Item]] = {}
    for note in notes:
        task = by_place.get((note.split, note.shard))
        if task is not None:
            for rank, item in enumerate(task.items[note.first : note.first + note.count]):
                found.setdefault((item.key, item.start), (rank, task, item))
    ranked = sorted(found.values(), key=lambda one: one[0])
    return [(task, item) for _, task, item in ranked if item not in task.refused]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """What may end or hold up a process.

    Attributes:
        item: Names it.
        work: Does with it what a run does; what it raises, the run itself will meet. Picklable.
        load: Loads what that needs. Picklable.
    """

    item: Item
    work: Callable[[], None]
    load: Callable[[], None]


def try_alone(
    suspects: Sequence[Suspect], known: Mapping[Item, str], timeout: float | None
) -> dict[Item, str]:
    """Try each suspect in a process of its own; return those that end it or hold it up, and how."""
    from joblib.externals.loky import ProcessPoolExecutor

    places = {(item.key, item.start) for item in known}
    found: dict[Item, str] = {}
    executor: Any = None
    try:
        for suspect in suspects:
            if (suspect.item.key, suspect.item.start) in places:
                continue
            limit = None if timeout is None else _SLACK * timeout
            try:
                if executor is None:
                    executor = ProcessPoolExecutor(
                        max_workers=1, initializer=end_with_parent, initargs=(os.getpid(),)
                    )
                    executor.submit(_seconds, suspect.load).result()
                took = executor.submit(_seconds, suspect.work).result(limit)
                if timeout is not None and took > timeout:
                    executor.submit(_seconds, suspect.work).result(timeout)  # all is loaded now
                continue
            except FutureTimeoutError:
                found[suspect.item] = f"{_HUNG} {timeout:g} s (--item-timeout)"
            except BrokenProcessPool as error:
                found[suspect.item] = f"{_ENDED}{_signal(str(error))}"
            executor.shutdown(wait=True, kill_workers=True)
            executor = None
    finally:
        if executor is not None:
            executor.shutdown(wait=True, kill_workers=True)
    return found


def _seconds(work: Callable[[], None]) -> float:
    """Do some work for nothing, and return how long it took."""
    start = time.monotonic()
    with contextlib.suppress(Exception):
        work()
    return time.monotonic() - start


def _prepare(task: ShardTask) -> None:
    """Prepare the items of a task for nothing."""
    with task.recipe.opened() as maker:
        for _ in maker.samples(ItemFiles(task.source), task.items):
            pass


def _signal(message: str) -> str:
    """Return how loky says that a worker ended, as " (SIGSEGV(-11))"."""
    codes = re.search(r"exit codes of the workers are \{([^}]*)\}", message)
    return f" ({codes[1]})" if codes else ""


def names_of(tasks: Sequence[ShardTask], out: Path) -> list[str]:
    """Return the keys of the items in work."""
    notes = read_notes(out / WORK, tasks[0].run_hash)
    return [item.key for _, item in _suspects(tasks, [replace(n, count=1) for n in notes])]


@contextmanager
def time_limit(out: Path, run_hash: str, seconds: float | None) -> Iterator[list[Note]]:
    """Kill worker processes that have an item in work for longer than so many seconds.

    Yields:
        What they had in work, as they are killed.
    """
    killed: list[Note] = []
    if seconds is None:
        yield killed
        return
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(seconds / _LOOKS):
            for note in read_notes(out / WORK, run_hash):
                if note.pid != os.getpid() and time.monotonic() - note.since > seconds:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(note.pid, signal.SIGKILL)
                        killed.append(note)

    watch = threading.Thread(target=look, name="prep-time-limit", daemon=True)
    watch.start()
    try:
        yield killed
    finally:
        ended.set()
        watch.join()
