"""Changed files of a dataset, chosen by the code that they reach (atheris, libFuzzer).

    python -m tests.fuzz_guided [--count 1000000] [--seed 0] [--corpus FOLDER] [--again FILE]

Tries what `tests.fuzz` tries, on the same files and with the same things allowed. An input is kept
if it reaches something that none before it has reached, and later ones are made of it: by the
changes of `tests.fuzz_mutations`, and by libFuzzer's own, whose checksums are made to fit as well.

What is kept lies in FOLDER (one that is left out is made and removed), where another run begins. An
input with which anything else happens ends the run and lies there as `crash-*`, one that takes ten
minutes as `timeout-*`; `--again` tries one such file. Needs atheris: Linux, x86-64.
"""

import argparse
import importlib
import pkgutil
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz_targets import Target

_PACKAGES = ("loaders", "preprocess")

_MOST = 1 << 20
"""Bytes of an input: many times the largest file."""

_SECONDS = 600
"""An input that takes so long hangs, on a busy machine too: the slowest takes a fraction of one."""


def as_input(name: str, data: bytes) -> bytes:
    """Return one input: which file it is put in the place of, and what that holds."""
    return name.encode() + b"\n" + data


def from_input(whole: bytes) -> tuple[str, bytes]:
    """Return which file an input is put in the place of, and what that holds."""
    name, _, data = whole.partition(b"\n")
    return name.decode(errors="replace"), data


def names(folder: Path, found: Iterable["Target"]) -> Mapping[str, "Target"]:
    """Return targets by what stands in their inputs: the same in every run."""
    return {f"{one.verb} {one.path.relative_to(folder)}": one for one in found}


def instrument() -> None:
    """Load all modules of both packages so that what runs in them is counted.

    Raises:
        RuntimeError: One is loaded already: what runs in it would not be counted.
    """
    import atheris

    before = {name.partition(".")[0] for name in sys.modules} & set(_PACKAGES)
    if before:
        raise RuntimeError(f"{', '.join(before)} must not be loaded before it is instrumented")

    with atheris.instrument_imports(include=list(_PACKAGES)):
        for package in _PACKAGES:
            path = importlib.import_module(package).__path__
            for module in pkgutil.walk_packages(path, f"{package}."):
                if module.name != "loaders.gather_kernels":  # for a GPU
                    importlib.import_module(module.name)


def fuzz(folder: Path, corpus: Path, kinds: Sequence[str], words: Iterable[str]) -> None:
    """Try inputs until one is not refused as it must be; does not return.

    Args:
        folder: Empty; small datasets are made in it.
        corpus: Where inputs are kept, and where those of earlier runs lie.
        kinds: Of datasets; empty for all.
        words: Options of libFuzzer, and inputs to be tried alone.
    """
    instrument()
    import atheris

    from tests.fuzz_mutations import fitted, mutated
    from tests.fuzz_targets import limit_memory, targets, try_one, watch_opens
    from tests.small_datasets import KINDS

    outside = watch_opens(folder)
    known = names(folder, targets(folder, kinds or KINDS))
    for number, (name, target) in enumerate(known.items()):
        (corpus / f"seed-{number}").write_bytes(as_input(name, target.path.read_bytes()))

    def change(whole: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        name, data = from_input(whole)
        if name not in known:  # the empty input that libFuzzer begins with
            name = rng.choice(list(known))
            data = known[name].path.read_bytes()
        path, room = known[name].path, most - len(as_input(name, b""))
        if rng.randrange(2):
            changed = mutated(path, data, rng)
        else:
            changed = atheris.Mutate(data, min(room, 2 * len(data) + 64))
            changed = fitted(path, changed) if rng.randrange(8) else changed
        return as_input(name, changed[:room])

    def try_input(whole: bytes) -> int:
        name, data = from_input(whole)
        if name not in known:
            return -1  # not kept
        try_one(folder, known[name], data)
        if outside:
            raise RuntimeError(f"opened {outside}")
        return 0

    limit_memory()
    atheris.Setup(["fuzz_guided", *words], try_input, custom_mutator=change)
    atheris.Fuzz()


def main() -> None:
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, help="where inputs are kept")
    parser.add_argument("--again", type=Path, help="try this input alone")
    parser.add_argument("--kinds", nargs="+", default=[], help="of datasets")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        words = [str(chosen.again)] if chosen.again else [str(chosen.corpus)]
        words += [f"-runs={chosen.count}", f"-seed={chosen.seed + 1}", f"-max_len={_MOST}"]
        words += [f"-timeout={_SECONDS}", f"-report_slow_units={_SECONDS}"]
        words += [f"-artifact_prefix={chosen.corpus}/", "-reduce_inputs=0", "-print_final_stats=1"]
        fuzz(chosen.inside, chosen.corpus, chosen.kinds, words)
    sys.exit(_in_a_process(chosen.corpus))


def _in_a_process(corpus: Path | None) -> int:
    """Run this command again within folders that are removed, as libFuzzer ends its process."""
    shm = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    kept = Path(corpus or tempfile.mkdtemp(prefix="fuzz-"))
    kept.mkdir(parents=True, exist_ok=True)
    try:
        words = [*sys.argv[1:], "--corpus", str(kept), "--inside", str(folder)]
        code = subprocess.run(
            [sys.executable, "-m", "tests.fuzz_guided", *words], check=False
        ).returncode
    finally:
        shutil.rmtree(folder)
    if corpus is None and not code:
        shutil.rmtree(kept)
    return code


if __name__ == "__main__":
    main()
