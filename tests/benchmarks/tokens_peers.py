"""Whole jobs from a JSONL of texts to token ids on the disk: `prep tokens` and what others use.

Each contender is a process of its own, start and imports included, in the Python given for it (one
that has its packages); one without a Python is left out. All end each document with the
tokenizer's end token, and the tokens that each wrote are shown: other counts are other work.

Run: python -m tests.benchmarks.tokens_peers TEXT.jsonl TOKENIZER_FOLDER \\
         [--datasets-python PYTHON] [--datatrove-python PYTHON] [--megatron-python PYTHON]
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.inputs import empty
from tests.benchmarks.rounds import Runs, alternate, report, show

OURS = "prep tokens"

# Arguments of each script: text, folder for its output (not there yet), tokenizer folder, workers.
PREP = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from preprocess.cli import prep
text, out, tokenizer, workers = sys.argv[1:]
sys.exit(prep(["tokens", text, out, "--tokenizer", tokenizer, "--workers", workers]))
"""

# As the documentation of `datasets` shows: a batched map with the fast tokenizer, saved as Arrow.
DATASETS = """
import sys
from datasets import load_dataset
from transformers import PreTrainedTokenizerFast
text, out, folder, workers = sys.argv[1:]
if __name__ == "__main__":
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    end = tokenizer.eos_token_id
    def encode(batch):
        ids = tokenizer(batch["text"], add_special_tokens=False, return_attention_mask=False)
        return {"input_ids": [one + [end] for one in ids["input_ids"]]}
    data = load_dataset("json", data_files=text, split="train", cache_dir=out + "/cache")
    data = data.map(encode, batched=True, num_proc=int(workers), remove_columns=data.column_names)
    data.save_to_disk(out + "/ids")
"""

# The steps of nanoGPT's preparation: one document a call with tiktoken, a map over processes, and a
# memory map that is filled from numpy batches. tiktoken would download GPT-2's ranks; here they are
# those of the tokenizer given, which must be GPT-2's.
NANOGPT = """
import json, sys
import numpy as np, tiktoken
from datasets import load_dataset
text, out, folder, workers = sys.argv[1:]
def ranks_of(vocabulary):
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    byte_of = {chr(byte): byte for byte in plain}
    byte_of |= {chr(256 + index): byte for index, byte in enumerate(rest)}
    return {bytes(byte_of[c] for c in token): rank for token, rank in vocabulary.items()}
if __name__ == "__main__":
    vocabulary = json.load(open(folder + "/tokenizer.json"))["model"]["vocab"]
    end = vocabulary.pop("<|endoftext|>")
    pattern = (r"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++"
               r"|\\s++$|\\s+(?!\\S)|\\s")
    encoding = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks_of(vocabulary),
                                 special_tokens={"<|endoftext|>": end})
    def encode(document):
        ids = encoding.encode_ordinary(document["text"]) + [end]
        return {"ids": ids, "len": len(ids)}
    data = load_dataset("json", data_files=text, split="train", cache_dir=out + "/cache")
    data = data.map(encode, num_proc=int(workers), remove_columns=data.column_names)
    total = int(np.sum(data["len"], dtype=np.uint64))
    stored = np.memmap(out + "/train.bin", np.uint16, "w+", shape=(total,))
    batches, at = min(1024, len(data)), 0
    for index in range(batches):
        shard = data.shard(num_shards=batches, index=index, contiguous=True).with_format("numpy")
        ids = np.concatenate(shard["ids"])
        stored[at : at + len(ids)] = ids
        at += len(ids)
    stored.flush()
"""

DATATROVE = """
import json, sys
from pathlib import Path
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
text, out, folder, workers = sys.argv[1:]
if __name__ == "__main__":
    end = json.load(open(folder + "/tokenizer_config.json"))["eos_token"]
    end = end["content"] if isinstance(end, dict) else end
    # datatrove shares out files, so there must be as many as there are workers.
    lines = Path(text).read_bytes().splitlines(keepends=True)
    parts = Path(out + "/parts")
    parts.mkdir(parents=True)
    for index in range(int(workers)):
        share = lines[index * len(lines) // int(workers) : (index + 1) * len(lines) // int(workers)]
        (parts / f"{index}.jsonl").write_bytes(b"".join(share))
    LocalPipelineExecutor(
        pipeline=[JsonlReader(str(parts)),
                  DocumentTokenizer(out + "/ids", folder + "/tokenizer.json", eos_token=end,
                                    shuffle_documents=False)],
        tasks=int(workers), workers=int(workers), logging_dir=out + "/logs",
    ).run()
"""

# The steps of Megatron-LM's tools/preprocess_data.py with megatron-core's own builder: one document
# a call in a pool of processes. Without the imports of its training package, which take seconds.
MEGATRON = """
import json, multiprocessing, sys
from pathlib import Path
text, out, folder, workers = sys.argv[1:]
def start():
    global tokenizer
    from transformers import PreTrainedTokenizerFast
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
def encode(line):
    ids = tokenizer.encode(json.loads(line)["text"], add_special_tokens=False)
    return ids + [tokenizer.eos_token_id]
if __name__ == "__main__":
    import numpy as np
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
    start()
    Path(out).mkdir(parents=True)
    builder = IndexedDatasetBuilder(out + "/ids.bin", dtype=DType.optimal_dtype(len(tokenizer)))
    with multiprocessing.Pool(int(workers), initializer=start) as pool, open(text, "rb") as lines:
        for ids in pool.imap(encode, lines, 32):
            builder.add_document(ids, [len(ids)])
    builder.finalize(out + "/ids.idx")
"""


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

    return len(open_megatron(out / "ids").values)


SCRIPTS: dict[str, tuple[str, Callable[[Path], int]]] = {
    OURS: (PREP, _tokens_ours),
    "datasets.map": (DATASETS, _tokens_arrow),
    "nanoGPT's way": (NANOGPT, _tokens_raw),
    "datatrove": (DATATROVE, _tokens_raw),
    "Megatron's way": (MEGATRON, _tokens_megatron),
}
"""The script of each contender, and what counts its ids: of uint16, where its file does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured: the contenders are those that have a Python."""

    text: Path
    tokenizer: Path
    pythons: dict[str, Path]
    workers: int = 2
    rounds: int = 3


def run_job(setting: Setting, name: str, out: Path) -> None:
    """Run one contender's process to its end."""
    script, _ = SCRIPTS[name]
    # A file, not "-c": the pools of some start their workers from it.
    path = out.parent / "job.py"
    path.write_text(script)
    inputs = [str(setting.text), str(out), str(setting.tokenizer), str(setting.workers)]
    command = [str(setting.pythons[name]), "-W", "ignore", str(path), *inputs]
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


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="JSON lines with a key text")
    parser.add_argument("tokenizer", type=Path, help="folder with tokenizer.json; GPT-2's")
    parser.add_argument("--datasets-python", type=Path, help="has datasets, transformers, tiktoken")
    parser.add_argument("--datatrove-python", type=Path, help="has datatrove with io, tokenizers")
    parser.add_argument("--megatron-python", type=Path, help="has megatron-core, transformers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    pythons = {
        OURS: Path(sys.executable),
        "datasets.map": chosen.datasets_python,
        "nanoGPT's way": chosen.datasets_python,
        "datatrove": chosen.datatrove_python,
        "Megatron's way": chosen.megatron_python,
    }
    setting = Setting(
        text=chosen.text.absolute(),
        tokenizer=chosen.tokenizer.absolute(),
        pythons={name: path.absolute() for name, path in pythons.items() if path is not None},
        workers=chosen.workers,
        rounds=chosen.rounds,
    )
    with tempfile.TemporaryDirectory() as folder:
        runs, tokens = measure(setting, Path(folder))
    nbytes = setting.text.stat().st_size
    title = f"{nbytes / 1e6:.1f} MB of JSON lines, {setting.workers} workers, whole processes"
    show(report(title, runs, count=nbytes // 1000, unit="kB", reference=OURS))
    show([f"  {name}: {count:,} tokens" for name, count in tokens.items()])


if __name__ == "__main__":
    main()
