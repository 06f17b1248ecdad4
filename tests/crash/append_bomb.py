"""Run by the crash tests in a process of its own: an append that ends at one exact system call.

    python -m tests.crash.append_bomb CONTAINER STRIDE SOURCE WORK [NBYTES ...]

WORK/before holds a dataset of a part of SOURCE. For every n (or every STRIDE-th) a child appends
the rest to a copy of it, and ends at the n-th call that changes names or makes them durable. What
is left must be the dataset as it was or as it is to be, whole; then the same command makes it what
an append leaves that nobody stopped. Every second time another child first gives a command of
another kind, which clears up. Prints the first n that an append does not reach.
With NBYTES no call ends it, but no file may pass so many bytes, as on a full disk.
"""

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from loaders.format.files import MANIFEST, WORK, checksum
from loaders.format.promised import promised_files
from loaders.format.spec import read_manifest
from preprocess.append import continue_plan
from preprocess.errors import OutputError
from preprocess.output import hold
from preprocess.plan import RunOptions
from preprocess.run import run
from tests.crash.bomb import KILLED, arm, difference, finish_in_child, in_child
from tests.file_limit import limit_files
from tests.recipes import DigestRecipe, plan_digests, read_tree, row_nbytes

SIDE = 20


def append(container: str, source: Path, out: Path) -> None:
    """Append what is new in the source, as the commands do."""
    recipe = DigestRecipe(side=SIDE)
    options = RunOptions(
        container="zarr" if container == "zarr" else "tensor",
        shard_nbytes=3 * row_nbytes(recipe),
        workers=1,
        append=True,
    )
    run(continue_plan(plan_digests(source, out, options, recipe), options), options)


def expect_whole(out: Path, either: set[bytes]) -> None:
    """Refuse a folder that is not one of the two datasets, every promised byte of it.

    Raises:
        RuntimeError: It is something else.
    """
    if (out / MANIFEST).read_bytes() not in either:
        raise RuntimeError("the manifest is neither of the two")
    for file in promised_files(out, read_manifest(out)):
        if checksum(file.path) != file.crc32c:
            raise RuntimeError(f"{file.path} is not what its manifest promises")


def stopped(nth: int) -> Callable[[], None]:
    return partial(arm, nth)


def hinder_and_finish(
    container: str, source: Path, work: Path, hinder: Callable[[], None], *, clear: bool
) -> int:
    """Append with something in the way, then without; return how the first one ended.

    Raises:
        RuntimeError: The folder does not hold what it should.
    """
    whole, out = work / "whole", work / "out"
    shutil.copytree(work / "before", out)

    def hindered() -> None:
        hinder()
        try:
            append(container, source, out)
        except OutputError as error:
            if "cannot write" not in str(error) or str(out) not in str(error):
                raise
            os._exit(KILLED)

    code = in_child(hindered)
    either = {(folder / MANIFEST).read_bytes() for folder in (work / "before", whole)}
    expect_whole(out, either)
    if code not in {0, KILLED}:
        raise RuntimeError(f"the append ended with {code}")
    if clear and in_child(lambda: hold(out).release(finished=True)):
        raise RuntimeError("what was left could not be cleared up")
    if clear:
        expected = {(folder / MANIFEST).read_bytes(): folder for folder in (work / "before", whole)}
        compare(out, expected[(out / MANIFEST).read_bytes()])
    if finish_in_child(partial(append, container, source, out), work):
        raise RuntimeError("the same command again has failed")
    compare(out, whole)
    if (out / WORK).exists():
        raise RuntimeError(f"{out / WORK} is left")
    shutil.rmtree(out)
    return code


def compare(out: Path, expected: Path) -> None:
    found, wanted = read_tree(out), read_tree(expected)
    if found != wanted:
        raise RuntimeError(difference(found, wanted))


def main(container: str, stride: int, source: Path, work: Path, sizes: list[int]) -> None:
    for module in ("cv2", "joblib", "zarr.storage"):
        import_module(module)  # once, not in every child
    shutil.copytree(work / "before", work / "whole")
    if in_child(partial(append, container, source, work / "whole")):
        raise RuntimeError("the append that nobody stops has failed")
    for nbytes in sizes:
        code = hinder_and_finish(container, source, work, partial(limit_files, nbytes), clear=False)
        if code != KILLED:
            raise RuntimeError(f"{nbytes} bytes to a file were enough")
    nth, code = 1 - stride, KILLED
    while code == KILLED and not sizes:
        nth += stride
        try:
            code = hinder_and_finish(
                container, source, work, stopped(nth), clear=bool(nth // stride % 2)
            )
        except RuntimeError as error:
            raise RuntimeError(f"stopped at call {nth}: {error}") from error
    sys.stdout.write(f"{nth}\n")


if __name__ == "__main__":
    kind, every, folder, place, *rest = sys.argv[1:]
    main(kind, int(every), Path(folder), Path(place), [int(size) for size in rest])
