"""Mutated files of a dataset, in great numbers: what opens them must refuse them, and nothing else.

    python -m tests.fuzz [--count 1000000] [--seed 0]

Each input is a file of a small dataset with some bytes, or some values of its JSON, changed; the
checksums that would give it away are made to fit. What may come is said in `tests.fuzz_targets`.
`tests.fuzz_guided` chooses changes by what they reach.
"""

import argparse
import os
import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz_mutations import mutated
from tests.fuzz_targets import limit_memory, targets, try_one, watch_opens


def fuzz(count: int, seed: int, folder: Path) -> Counter[str]:
    """Try so many inputs; return how often what came.

    Raises:
        AssertionError: A reader did anything but refuse or read; the message names an input for
            each place in which that happened, and says how to do it again.
    """
    outside = watch_opens(folder)
    found = targets(folder)
    shares = [target.share for target in found]
    wholes = {target.path: target.path.read_bytes() for target in found}
    counted: Counter[str] = Counter()
    broken: dict[str, str] = {}
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        (target,) = rng.choices(found, shares)
        name = f"seed {seed}, input {number}, {target.path.relative_to(folder)}"
        try:
            data = mutated(target.path, wholes[target.path], rng)
            counted[try_one(folder, target, data)] += 1
        except Exception as error:  # noqa: BLE001 - goes on, to name every place
            place = traceback.extract_tb((error.__cause__ or error).__traceback__)[-1]
            where = f"{place.filename}:{place.lineno}"
            broken.setdefault(where, f"{name}: {where}: {type(error).__name__}: {error}")
        if outside:
            broken.setdefault(outside[0], f"{name}: opened {outside}")
            outside.clear()
    assert not broken, "\n".join(broken.values())
    return counted


def main() -> None:
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    limit_memory()
    begin = time.process_time()
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        counted = fuzz(chosen.count, chosen.seed, folder)
    finally:
        shutil.rmtree(folder)
    seconds = time.process_time() - begin
    print(f"{chosen.count:,} inputs in {seconds:,.0f} s of a processor: {dict(counted)}")


if __name__ == "__main__":
    main()
