"""Processes that form one torch.distributed group."""

import subprocess
import sys
from pathlib import Path

from tests.waiting import SECONDS

_START = """
import json, os, sys, threading
from datetime import timedelta
import torch, torch.distributed as dist

torch.set_num_threads(1)
rank, world, rendezvous, *arguments = sys.argv[1:]
dist.init_process_group(
    "gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=int(world),
    timeout=timedelta(minutes=10),
)
"""

_END = """
dist.destroy_process_group()
# The thread in which zarr describes what a test writes is zarr's, and for the life of the process.
left = [thread for thread in threading.enumerate() if thread.name != "zarr_io"]
assert left == [threading.main_thread()], left
# Gloo's threads outlive the group, and now and then one aborts the end of the interpreter.
sys.stderr.flush()
os._exit(0)
"""


def run_group(folder: Path, body: str, world: int, arguments: list[list[str]]) -> None:
    """Run `body` in `world` processes, each of which has a rank and its `arguments`.

    Raises:
        AssertionError: One of them failed; the message is what it wrote to stderr. None is left.
    """
    children = [
        subprocess.Popen(
            [
                *(sys.executable, "-X", "faulthandler", "-c", _START + body + _END),
                *(str(rank), str(world), str(folder / "meet"), *arguments[rank]),
            ],
            cwd=Path(__file__).parents[1],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        for rank, child in enumerate(children):
            _, errors = child.communicate(timeout=SECONDS)
            assert child.returncode == 0, f"rank {rank} ended with {child.returncode}: {errors}"
    finally:
        for child in children:
            with child:  # waits, and closes its pipe
                child.kill()
