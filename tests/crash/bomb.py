"""Run by the crash tests in a process of its own: a run that ends at one exact system call.

    python -m tests.crash.bomb STORED STRIDE SOURCE WORK [BEFORE]

Forks one child for every n (or every STRIDE-th): in it the n-th of the calls that change names or
make them durable ends the process as kill -9 would. After each, another child gives the same
command again, and the folder must then hold the bytes of a run that nobody stopped. Prints the
first n that a run does not reach.
With BEFORE, a folder, each run overwrites a copy of it. With "replace" in its place, the
run that is stopped has other options, and the one after it overwrites what it left.
"""

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from traceback import walk_stack
from typing import Any

from preprocess.in_work import PREFIX
from preprocess.plan import RunOptions
from preprocess.run import run
from tests.recipes import STORED, DigestRecipe, plan_digests, read_tree, row_nbytes
from tests.sync import skip_sync

CALLS = ("fsync", "replace", "mkdir", "unlink", "rmdir")
_LOADED = (
    "cv2", "email.parser", "joblib", "multiprocessing.dummy", "numcodecs.zstd", "simplejpeg",
    "zarr.storage",
)  # fmt: skip
KILLED = 70
MISSED = 71


def watch(told: Callable[[], None]) -> None:
    """Call a function before each of the calls that this process makes."""

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            told()
            return call(*args, **kwargs)

        return made

    # A killed process loses no page of the kernel's: the calls count, their time is not needed.
    os.fsync = skip_sync
    for name in CALLS:
        setattr(os, name, watched(getattr(os, name)))


def arm(fatal: int) -> None:
    """End this process instead of making the `fatal`-th of the calls, counted from 1."""
    numbers = count(1)

    def told() -> None:
        if next(numbers) == fatal:
            os._exit(KILLED)

    watch(told)


def first_and_last(work: Callable[[], None], note: Path) -> list[int]:
    """Return which calls of some work are the first or the last of a place in the code.

    A place is all lines that lead to it: one that writes a file is many, by who has it written.

    Args:
        work: Carried out in a child process.
        note: A file for what that finds.

    Raises:
        RuntimeError: The work failed.
    """

    def noted() -> None:
        places: list[tuple[Any, ...]] = []
        watch(lambda: places.append(tuple((f.f_code, n) for f, n in walk_stack(None))))
        work()
        first = {place: number for number, place in reversed([*enumerate(places, 1)])}
        last = {place: number for number, place in enumerate(places, 1)}
        note.write_text(json.dumps(sorted({*first.values(), *last.values()})))

    if in_child(noted):
        raise RuntimeError("the run that nobody stops has failed")
    found: list[int] = json.loads(note.read_text())
    return found


def prepare(stored: str, source: Path, out: Path, *, overwrite: bool, side: int = 2) -> None:
    container, encoding = STORED[stored]
    recipe = DigestRecipe(side=side, encoding=encoding)
    options = RunOptions(
        container=container, shard_nbytes=3 * row_nbytes(recipe), workers=1, overwrite=overwrite
    )
    run(plan_digests(source, out, options, recipe), options)


def fork_workers() -> None:
    """Let joblib fork its processes, and not start interpreters that load everything again."""
    from joblib.externals.loky.backend.context import set_start_method

    warnings.filterwarnings("ignore", "`fork` start method", UserWarning)
    set_start_method("fork", force=True)


def in_child(work: Callable[[], None], *, forks: bool = False) -> int:
    """Do some work in a child process; return how it ended.

    Args:
        work: What to do.
        forks: As `fork_workers`.
    """
    child = os.fork()
    if child == 0:
        os.fsync = skip_sync
        try:
            if forks:
                fork_workers()
            work()
        except BaseException:  # noqa: BLE001 - the exit code tells, whatever it was
            sys.excepthook(*sys.exc_info())
            os._exit(MISSED)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def difference(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    both = found.keys() & expected.keys()
    return (
        f"more {sorted(found.keys() - expected.keys())}, "
        f"missing {sorted(expected.keys() - found.keys())}, "
        f"other bytes in {sorted(name for name in both if found[name] != expected[name])}"
    )


_tried: list[Path] = []
"""Notes that a run of this process has come upon."""


def finish_in_child(work: Callable[[], None], place: Path) -> int:
    """Give a command again in a child process; return how it ended.

    What was in work when the one before it ended is tried in a process of its own: the first time
    in a new interpreter, as it is for users, then in forks, which need not load all of it again.

    Args:
        work: The command.
        place: Where the one before it has left what it left.
    """
    notes = [*place.rglob(f"{PREFIX}*")]
    code = in_child(work, forks=bool(_tried))
    _tried.extend(notes)
    return code


def stop_and_finish(
    fatal: int,
    out: Path,
    expected: dict[str, bytes],
    begin: Callable[[], None],
    finish: Callable[[], None],
) -> bool:
    """Stop a run at one call and finish it by another; return whether the call was reached.

    Raises:
        RuntimeError: The folder does not hold what it should.
    """

    def stopped() -> None:
        arm(fatal)
        begin()

    code = in_child(stopped)
    reached = code == KILLED
    if reached or begin is not finish:
        code = finish_in_child(finish, out.parent)
    if code:
        raise RuntimeError(f"stopped at call {fatal}: a run ended with exit code {code}")
    found = read_tree(out)
    if found != expected:
        raise RuntimeError(f"stopped at call {fatal}: {difference(found, expected)}")
    return reached


def stop_at_each(
    stride: int,
    work: Path,
    prepare: Callable[..., None],
    own_folder: Callable[[Path], Path],
    *,
    overwrite: bool,
) -> None:
    """Stop a run of several steps at many of its calls, and print the last that was tried.

    Args:
        stride: Calls between two stops; 0 to stop at the first and the last of each place in the
            code, as `first_and_last` finds them.
        work: Folder for the datasets.
        prepare: Called with the output folder, `overwrite` and the `seed` of an order.
        own_folder: Where such a run keeps what lies between its steps; it must be gone at the end.
        overwrite: Let each run overwrite a dataset of another order.

    Raises:
        RuntimeError: What is there at the end is not what a run leaves that nobody stops.
    """
    whole, out, before = work / "whole", work / "out", work / "before"
    # In this process: what is loaded here, and threads that begin here, are none of the children's.
    prepare(whole, overwrite=False, seed=3)
    expected = read_tree(whole)
    if overwrite:
        prepare(before, overwrite=False, seed=4)
    finish = partial(prepare, out, overwrite=overwrite, seed=3)

    def begin() -> None:
        if overwrite:
            shutil.copytree(before, out)

    numbers: Iterable[int] = count(1, stride)
    if not stride:
        begin()
        numbers = first_and_last(finish, work / "note")
        shutil.rmtree(out)
    for fatal in numbers:
        begin()
        reached = stop_and_finish(fatal, out, expected, finish, finish)
        if own_folder(out).exists():
            raise RuntimeError(f"stopped at call {fatal}: {own_folder(out)} is left")
        shutil.rmtree(out)
        if not reached:
            break
    sys.stdout.write(f"{fatal}\n")


def main(stored: str, stride: int, source: Path, work: Path, before: Path | None) -> None:
    for module in _LOADED:
        import_module(module)  # once, not in every child
    overwrite = before is not None
    replace = before == Path("replace")
    whole = work / "whole"
    if in_child(lambda: prepare(stored, source, whole, overwrite=False)):
        raise RuntimeError("the run that nobody stops has failed")
    expected = read_tree(whole)
    out = work / "out"
    finish = partial(prepare, stored, source, out, overwrite=overwrite)
    begin = partial(prepare, stored, source, out, overwrite=False, side=3)
    reached = True
    fatal = 1 - stride
    while reached:
        fatal += stride
        if before is not None and not replace:
            shutil.copytree(before, out)
        reached = stop_and_finish(fatal, out, expected, begin if replace else finish, finish)
        shutil.rmtree(out)
    sys.stdout.write(f"{fatal}\n")


if __name__ == "__main__":
    kind, every, source, work, *rest = sys.argv[1:]
    main(
        kind,
        int(every),
        Path(source),
        Path(work),
        Path(rest[0]) if rest else None,
    )
