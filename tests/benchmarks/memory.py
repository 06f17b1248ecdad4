"""Peak anonymous memory of `prep images`: does it depend on the number of photos or the shard size?

Anonymous memory is what the job itself holds; the page cache behind maps is the kernel's to give
back and is left out. Pages that processes share are counted once (Linux: `Pss_Anon`).

Run: python -m tests.benchmarks.memory [--photos DIR]
"""

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

from tests.benchmarks.inputs import empty, prep_images, usable_photos
from tests.benchmarks.rounds import show

SAMPLE_SECONDS = 0.02
PSS_ANON = re.compile(r"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)


def process_tree(root: int) -> list[int]:
    """List a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold spaces: the fields start after its end.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended while we looked
        children.setdefault(parent, []).append(int(stat.parent.name))
    tree = [root]
    for process in tree:
        tree.extend(children.get(process, []))
    return tree


def anonymous_nbytes(process: int) -> int:
    """Read one process's share of anonymous memory; 0 once it has ended."""
    try:
        found = PSS_ANON.search(Path(f"/proc/{process}/smaps_rollup").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(found[1]) * 1024 if found else 0


def peak_nbytes(command: list[str], cwd: Path | None = None) -> int:
    """Run a command, in `cwd` if given, and sample its process tree; fail if it fails."""
    peak = 0
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=cwd)
        while True:
            try:
                code = process.wait(SAMPLE_SECONDS)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, sum(map(anonymous_nbytes, process_tree(process.pid))))
        output.seek(0)
        if code != 0:
            raise RuntimeError(f"{command}: exit code {code}\n{output.read().decode()}")
    return peak


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, help="folder of photos; painted ones if absent")
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 400])
    parser.add_argument("--shard-sizes", nargs="+", default=["32MB", "256MB"])
    parser.add_argument("--backends", nargs="+", default=["threading", "loky"])
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    show([f"peak anonymous MB of prep images to 512 and 1024, {chosen.workers} workers"])
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for count in chosen.counts:
            source = usable_photos(chosen.photos, scratch, count, (2048, 1536))
            for backend in chosen.backends:
                for shard_size in chosen.shard_sizes:
                    options = ("--shard-size", shard_size, "--backend", backend)
                    workers = ("--workers", str(chosen.workers))
                    out = scratch / "out"
                    command = prep_images(source, out, (512, 1024), *options, *workers)
                    peak = peak_nbytes(command)
                    empty(out)
                    name = f"{count} photos, shards of {shard_size}, {backend}"
                    show([f"  {name:44} {peak / 1e6:7.0f}"])


if __name__ == "__main__":
    main()
