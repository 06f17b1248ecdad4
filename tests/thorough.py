"""All that is too long for every change, one after the other: thorough tests, kills, fuzzing.

    python -m tests.thorough [--kills 1000] [--inputs 1000000] [--seed 0]

Stops runs at every single call and cuts the power there, flips bits (`pytest -m thorough`), kills
commands at random moments (`tests.kills`) and opens mutated files (`tests.fuzz`, and
`tests.fuzz_guided` where atheris is installed). Each is done whatever the ones before it have
found; the exit code is 1 if any has found something. Takes hours.
"""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commands(kills: int, inputs: int, seed: int) -> list[list[str]]:
    """Return the commands, in their order."""
    fuzzers = ["tests.fuzz", *(["tests.fuzz_guided"] if find_spec("atheris") else [])]
    counts = [("tests.kills", kills), *((fuzzer, inputs) for fuzzer in fuzzers)]
    return [
        [sys.executable, "-m", "pytest", "-m", "thorough", "-q"],
        *(
            [sys.executable, "-m", module, "--count", str(count), "--seed", str(seed)]
            for module, count in counts
        ),
    ]


def run_all(asked: Sequence[Sequence[str]]) -> list[str]:
    """Run every command; return those that have found something."""
    found = []
    for command in asked:
        print(f"$ {shlex.join(command)}", flush=True)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code:
            found.append(f"exit code {code}: {shlex.join(command)}")
    return found


def main() -> None:
    """Run all from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="tries of tests.kills")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs of each fuzzer")
    parser.add_argument("--seed", type=int, default=0, help="of them")
    chosen = parser.parse_args()
    found = run_all(commands(chosen.kills, chosen.inputs, chosen.seed))
    print("\n".join(found) or "nothing found")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
