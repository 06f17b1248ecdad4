"""Whole jobs from a JSONL of texts to token ids on the disk: `prep tokens` and what others use.

Each contender is a process of its own, start and imports included, in the Python given for it (one
that has its packages); one without a Python is left out. All end each document with the
tokenizer's end token, and the tokens that each wrote are shown: other counts are other work. Two
things make them differ, so the text should be without: an empty document gets no end token from
Megatron-LM's preprocess_data, and the text of a special token stays text in ours and nanoGPT's way.

Peak memory is what a contender's processes hold of their own, as `memory` samples it, in a run of
its own: sampling would slow the timed ones.

Run: python -m tests.benchmarks.tokens_peers TEXT.jsonl TOKENIZER_FOLDER \\
         [--datasets-python PYTHON] [--datatrove-python PYTHON] [--megatron-python PYTHON] \\
         [--megatron312-python PYTHON --megatron-lm FOLDER]
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.benchmarks import tokens_scripts as scripts
from tests.benchmarks.inputs import empty
from tests.benchmarks.memory import peak_nbytes
from tests.benchmarks.rounds import Runs, alternate, report, show

OURS = "prep tokens"


def _tokens_ours(out: Path) -> int:
    from loaders.tokens import open_tokens

    return open_tokens(out).tokens


def _tokens_arrow(out: Path) -> int:
    import pyarrow as pa

    total = 0
    for path in sorted((out / "ids").glob("*.arrow")):
        with pa.ipc.open_stream(path) as batches:
            total += sum(len(batch["input_ids"].flatten()) for batch in batches)
    return total


def _tokens_raw(out: Path) -> int:
    return sum(
        path.stat().st_size // 2 for path in out.rglob("*") if path.suffix in {".bin", ".ds"}
    )


def _tokens_megatron(out: Path) -> int:
    from loaders.token_files import open_megatron

    (index,) = out.glob("*.idx")
    return len(open_megatron(index.with_suffix("")).values)


SCRIPTS: dict[str, tuple[str, Callable[[Path], int]]] = {
    OURS: (scripts.PREP, _tokens_ours),
    "datasets.map": (scripts.DATASETS, _tokens_arrow),
    "nanoGPT's way": (scripts.NANOGPT, _tokens_raw),
    "datatrove": (scripts.DATATROVE, _tokens_raw),
    "Megatron's way": (scripts.MEGATRON, _tokens_megatron),
    "Megatron preprocess_data": (scripts.MEGATRON_SLOW, _tokens_megatron),
    "Megatron preprocess_data_fast": (scripts.MEGATRON_FAST, _tokens_megatron),
}
"""The script of each contender, and what counts its ids: of uint16, where its file does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured: the contenders are those that have a Python.

    `repositories` holds the folders of those whose script is run from one.
    """

    text: Path
    tokenizer: Path
    pythons: dict[str, Path]
    repositories: dict[str, Path] = field(default_factory=dict)
    workers: int = 2
    rounds: int = 3


def command_of(setting: Setting, name: str, out: Path) -> list[str]:
    """Write one contender's script beside its output; give the command that runs it."""
    # A file, not "-c": the pools of some start their workers from it.
    path = out.parent / "job.py"
    path.write_text(SCRIPTS[name][0])
    inputs = [str(setting.text), str(out), str(setting.tokenizer), str(setting.workers)]
    if name in setting.repositories:
        inputs.append(str(setting.repositories[name]))
    return [str(setting.pythons[name]), "-W", "ignore", str(path), *inputs]


def run_job(setting: Setting, name: str, out: Path) -> None:
    """Run one contender's process to its end."""
    command = command_of(setting, name, out)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=out.parent)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def measure(setting: Setting, scratch: Path) -> tuple[Runs, dict[str, int]]:
    """Run the contenders in turns; give their seconds, and the tokens that each wrote."""
    out = scratch / "out"
    tokens = {}
    for name in setting.pythons:  # also warms the disk and what each keeps of its imports
        run_job(setting, name, out)
        tokens[name] = SCRIPTS[name][1](out)
        empty(out)
    jobs: dict[str, Callable[[], None]] = {
        name: partial(run_job, setting, name, out) for name in setting.pythons
    }
    return alternate(jobs, setting.rounds, between=partial(empty, out)), tokens


def peaks(setting: Setting, scratch: Path) -> dict[str, int]:
    """Run every contender once more; give the peak of the anonymous memory of its processes."""
    out = scratch / "out"
    found = {}
    for name in setting.pythons:
        found[name] = peak_nbytes(command_of(setting, name, out), cwd=scratch)
        empty(out)
    return found


def summary(tokens: dict[str, int], found: dict[str, int]) -> list[str]:
    """Write what each contender made and held, as lines of text."""
    width = max(map(len, tokens))
    return [
        f"  {name:{width}}  {count:,} tokens  peak {found[name] / 1e6:.0f} MB anonymous memory, "
        f"{found[name] / found[OURS]:.2f} times that of {OURS}"
        for name, count in tokens.items()
    ]


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="JSON lines with a key text")
    parser.add_argument("tokenizer", type=Path, help="folder with tokenizer.json; GPT-2's")
    parser.add_argument("--datasets-python", type=Path, help="has datasets, transformers, tiktoken")
    parser.add_argument("--datatrove-python", type=Path, help="has datatrove with io, tokenizers")
    parser.add_argument("--megatron-python", type=Path, help="has megatron-core, transformers")
    parser.add_argument("--megatron312-python", type=Path, help="has what --megatron-lm imports")
    parser.add_argument("--megatron-lm", type=Path, help="clone of the repository Megatron-LM")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    if (chosen.megatron312_python is None) != (chosen.megatron_lm is None):
        parser.error("--megatron312-python and --megatron-lm go together")
    pythons = {
        OURS: Path(sys.executable),
        "datasets.map": chosen.datasets_python,
        "nanoGPT's way": chosen.datasets_python,
        "datatrove": chosen.datatrove_python,
        "Megatron's way": chosen.megatron_python,
        "Megatron preprocess_data": chosen.megatron312_python,
        "Megatron preprocess_data_fast": chosen.megatron312_python,
    }
    repositories = {}
    if chosen.megatron_lm is not None:
        tools = [name for name in pythons if name.startswith("Megatron preprocess_data")]
        repositories = dict.fromkeys(tools, chosen.megatron_lm.absolute())
    setting = Setting(
        text=chosen.text.absolute(),
        tokenizer=chosen.tokenizer.absolute(),
        pythons={name: path.absolute() for name, path in pythons.items() if path is not None},
        repositories=repositories,
        workers=chosen.workers,
        rounds=chosen.rounds,
    )
    with tempfile.TemporaryDirectory() as folder:
        found = peaks(setting, Path(folder))
        runs, tokens = measure(setting, Path(folder))
    nbytes = setting.text.stat().st_size
    title = f"{nbytes / 1e6:.1f} MB of JSON lines, {setting.workers} workers, whole processes"
    show(report(title, runs, count=nbytes // 1000, unit="kB", reference=OURS))
    show(summary(tokens, found))


if __name__ == "__main__":
    main()
