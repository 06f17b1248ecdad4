"""Run by the crash tests in a process of its own: a run whose machine loses its power at any call.

    python -m tests.crash.power_loss CASE STRIDE SEEDS SOURCE WORK [TOKENIZER]

Notes every call of one run that changes names or makes something durable (`tests.crash.disk`), and
looks whether they come in an order that keeps what is promised. Then, for every STRIDE-th call,
writes what a power cut there may leave: nothing that was not synced, all of the names, and SEEDS
times some of them. Where that has a manifest it must be whole; and the same command must make of it
what a run leaves that nobody stopped. Prints how many power cuts there were.

CASE is "tensor", "zarr", "tokens", "shuffled tokens" or "table", and after a colon "new",
"overwrite" (of a dataset with other options) or "append" (to the dataset in WORK/before).
"""

import random
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from loaders.format.files import MANIFEST, WORK, checksum
from loaders.format.promised import promised_files
from loaders.format.spec import read_manifest
from preprocess.removal import REMOVED
from tests.crash import append_bomb, bomb, table_bomb, token_bomb, token_run
from tests.crash.bomb import difference, finish_in_child, in_child
from tests.crash.disk import Call, Disk, Recorder, read_calls, read_names, write_calls
from tests.recipes import read_tree

_NOT_DURABLE = (".arrow", ".skipped")
"""Endings of files beside a dataset whose checksum tells whether they are whole."""


def runs_of(
    case: str, source: Path, tokenizer: str
) -> tuple[Callable[[Path], None], Callable[[Path], None]]:
    """Return what makes the dataset that is there before, and what is to be stopped."""
    kind, _, mode = case.partition(":")
    overwrite = mode == "overwrite"
    if mode == "append":
        run = partial(append_bomb.append, kind, source)
        return (lambda out: None), run
    if kind == "table":
        table = partial(table_bomb.prepare, source)
        return partial(table, overwrite=False, seed=4), partial(table, overwrite=overwrite, seed=3)
    if kind == "shuffled tokens":
        tokens = partial(token_bomb.prepare, tokenizer, source)
        return (
            partial(tokens, overwrite=False, seed=4),
            partial(tokens, overwrite=overwrite, seed=3),
        )
    if kind == "tokens":
        stream = partial(token_run.prepare, "stream", "tensor", tokenizer, source)
        return stream, stream
    images = partial(bomb.prepare, kind, source)
    return partial(images, overwrite=False, side=3), partial(images, overwrite=overwrite)


def record(run: Callable[[Path], None], root: Path, store: Path) -> None:
    """Carry out a run and write down its calls."""
    recorder = Recorder(root, store)
    run(root / "out")
    write_calls(store / "calls", recorder.calls)


def broken_laws(calls: list[Call], before: dict[str, bytes | None], store: Path) -> Iterator[str]:
    """Yield every call that a power cut could turn against what is promised."""
    disk = Disk.holding(before, store)
    committed = False
    for number, call in enumerate(calls):
        what, name, more = call
        if what == "rename":
            yield from (f"call {number}: {said}" for said in _too_early(disk, name, more))
        if committed and what != "sync folder":
            yield f"call {number}: {what} {name} before the name of the manifest is durable"
        if more == f"out/{MANIFEST}" or (what, name) == ("unlink", f"out/{WORK}/{REMOVED}"):
            yield from (f"call {number}, manifest: {said}" for said in _not_durable(disk))
        disk.take(call)
        committed = more == f"out/{MANIFEST}" or (committed and call != ("sync folder", "out", ""))
    yield from (f"end: {said}" for said in _not_durable(disk))


def _too_early(disk: Disk, old: str, new: str) -> Iterator[str]:
    """Yield why a file must not get its name yet."""
    node = disk.seen[disk.place(old)]
    if not node.is_folder and node.held != node.synced and not old.endswith(_NOT_DURABLE):
        yield f"{old} becomes {new} before all of it is durable"
    # Staged files belong to a dataset that is there: no other run makes them again.
    folder = new.rpartition("/")[0]
    if old.startswith(f"out/{WORK}/next/") and folder not in dict(disk.paths(disk.sure)):
        yield f"{old} becomes {new} before its folder is durable"


def _not_durable(disk: Disk) -> Iterator[str]:
    """Yield what the process sees of the dataset and a power cut might change."""
    seen, sure = (
        {path: node for path, node in disk.paths(names) if f"{path}/".startswith("out/")}
        for names in (disk.seen, disk.sure)
    )
    for path in sorted(seen.keys() | sure.keys()):
        if not path.startswith(f"out/{WORK}") and seen.get(path) is not sure.get(path):
            yield f"the name {path} is not durable"


def expect_promised(out: Path, either: set[bytes]) -> None:
    """Refuse a manifest that does not stand for whole shards of one of some datasets.

    Raises:
        RuntimeError: It does not.
    """
    if not (out / MANIFEST).exists():
        return
    if (out / MANIFEST).read_bytes() not in either:
        raise RuntimeError("the manifest is none of those that were written")
    for file in promised_files(out, read_manifest(out)):
        if not file.path.is_file() or checksum(file.path) != file.crc32c:
            raise RuntimeError(f"{file.path} is not what its manifest promises")


def finish(run: Callable[[Path], None], root: Path, whole: dict[str, bytes]) -> None:
    """Give the same command, and compare what it leaves.

    Raises:
        RuntimeError: It failed, or left something else.
    """
    if code := finish_in_child(partial(run, root / "out"), root):
        raise RuntimeError(f"the same command ended with {code}")
    if (found := read_tree(root / "out")) != whole:
        raise RuntimeError(difference(found, whole))
    if left := [path.name for path in root.iterdir() if path.name != "out"]:
        raise RuntimeError(f"beside the dataset there is {left}")


def cut_everywhere(
    run: Callable[[Path], None],
    root: Path,
    store: Path,
    shares: list[float],
    stride: int,
    older: list[bytes],
) -> int:
    """Note the calls of a run, cut the power at every `stride`-th and finish; return how often.

    Raises:
        RuntimeError: Something is lost, or could be.
    """
    names = read_names(root)
    if in_child(partial(record, run, root, store)):
        raise RuntimeError("the run that nobody stops has failed")
    calls, whole = read_calls(store / "calls"), read_tree(root / "out")
    if laws := list(broken_laws(calls, names, store)):
        raise RuntimeError("\n".join(laws))
    disk, cuts = Disk.holding(names, store), 0
    for number, call in enumerate([*calls, None]):
        for seed, share in enumerate(shares if number % stride == 0 or call is None else []):
            shutil.rmtree(root)
            root.mkdir()
            disk.lose_power(share, random.Random(f"{number} {seed}"), store, root)
            try:
                expect_promised(root / "out", {whole[MANIFEST], *older})
                finish(run, root, whole)
            except RuntimeError as error:
                said = f"power lost before call {number} {call}, seed {seed}"
                raise RuntimeError(f"{said}: {error}") from error
            cuts += 1
        if call is not None:
            disk.take(call)
    return cuts


def main(case: str, stride: int, seeds: int, source: Path, work: Path, tokenizer: str) -> None:
    make_before, run = runs_of(case, source, tokenizer)
    root, store, before = work / "root", work / "store", work / "before"
    root.mkdir()
    store.mkdir()
    # In this process: what is loaded here need not be loaded in every child.
    if case.endswith(":append"):
        shutil.copytree(before, work / "warm")
        run(work / "warm")
    else:
        make_before(before)
    older = []
    if not case.endswith(":new"):
        shutil.copytree(before, root / "out")
        older = [(before / MANIFEST).read_bytes()]
    shares = [0.0, 1.0, *([0.5] * seeds)]
    sys.stdout.write(f"{cut_everywhere(run, root, store, shares, stride, older)}\n")


if __name__ == "__main__":
    case, every, times, source, work, *rest = sys.argv[1:]
    main(case, int(every), int(times), Path(source), Path(work), *rest or [""])
