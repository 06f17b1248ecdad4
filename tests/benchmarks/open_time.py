"""How long `loaders.open_dataset` takes on a dataset of many shards, and its first sample.

All files are there, of the sizes that the manifest promises, which is what opening looks at. Those
of the first shard hold a sample, the others are holes of that size. A process of its own says what
memory opening takes beside what is imported.

Run: python -m tests.benchmarks.open_time [--shards 100000]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loaders.format.files import read_json
from loaders.format.promised import promised_files
from loaders.format.spec import Manifest, read_manifest
from tests.benchmarks.rounds import show
from tests.synthetic import write_image_tree

SIDE = 8

# Argument: dataset. Prints the seconds to open it, and with its first sample; the mebibytes by
# which the peak of the process's memory grew after all was imported, and that peak.
FRESH = f"""
import json, resource, sys, time
from pathlib import Path
from loaders import open_dataset
import loaders.dataset, loaders.images
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
before, begin = peak(), time.perf_counter()
data = open_dataset(sys.argv[1], split="train", size={SIDE})
opened = time.perf_counter() - begin
data[0]
json.dump([opened, time.perf_counter() - begin, peak() - before, peak()], sys.stdout)
"""


def prepare(scratch: Path, shards: int) -> Path:
    """Make a dataset of one tiny image to a shard."""
    from preprocess import ImageOptions, RunOptions, images_to_shards

    source, out = scratch / "photos", scratch / "prepared"
    write_image_tree(source, ["only"], 1, size=(SIDE, SIDE))
    run = RunOptions(workers=1, backend="threading", shard_nbytes=1)  # never less than a sample
    images_to_shards(source, out, ImageOptions(sizes=((SIDE, SIDE),)), run)
    value = read_json(out / "manifest.json")
    train = value["splits"]["train"]
    train["items"] = shards
    train["class_counts"] = [shards]
    for facts in (train, *train["files"].values()):
        for name in {"counts", "nbytes", "crc32c"} & set(facts):
            facts[name] = facts[name] * shards
    for files in train["files"].values():  # as long and as different as those of a real one
        files["crc32c"] = [f"{n * 2654435761 % (1 << 32):08x}" for n in range(shards)]
    (out / "manifest.json").write_bytes(Manifest.from_json(value, "made").to_bytes())
    for file in promised_files(out, read_manifest(out)):
        if not file.path.exists():
            descriptor = os.open(file.where, os.O_CREAT | os.O_WRONLY)
            os.truncate(descriptor, file.nbytes)
            os.close(descriptor)
    return out


def measure(dataset: Path, repeats: int) -> tuple[list[float], list[float]]:
    """Give milliseconds to open, and to open and read the first sample, once per repeat."""
    from loaders import open_dataset

    opened, first = [], []
    for _ in range(repeats):
        begin = time.perf_counter()
        data = open_dataset(dataset, split="train", size=SIDE)
        opened.append((time.perf_counter() - begin) * 1e3)
        data[0]
        first.append((time.perf_counter() - begin) * 1e3)
    return opened, first


def measure_fresh(dataset: Path) -> list[float]:
    """Give seconds to open and with the first sample, and MiB more than before and in all."""
    command = [sys.executable, "-c", FRESH, str(dataset)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: list[float] = json.loads(shown)
    return found


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=20)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        dataset = prepare(Path(scratch), chosen.shards)
        files = sum(1 for path in dataset.rglob("*") if path.is_file())
        opened, first = measure(dataset, chosen.repeats)
        fresh = measure_fresh(dataset)
    show([f"a dataset of {chosen.shards} shards ({files} files), warm, {chosen.repeats} times"])
    for name, values in (("open_dataset", opened), ("open + first sample", first)):
        shown = " ".join(f"{value:.2f}" for value in values)
        show([f"  {name:20} median {statistics.median(values):.2f} ms: {shown}"])
    show([f"  a fresh process: {fresh[0]:.3f} s to open, {fresh[1]:.3f} with the first sample"])
    show([f"    the peak of its memory grew by {fresh[2]:.1f} MiB, to {fresh[3]:.1f}"])


if __name__ == "__main__":
    main()
