"""Training on several GPUs of one machine with a `Loader` on each rank, against one GPU.

    torchrun --nproc-per-node 2 -m tests.benchmarks.device_ddp

checks first that batches are right on every GPU, that all ranks get the same number of them, and
that they share the samples of an epoch; then it trains ResNet-50 on one GPU and on all of them in
turns. Makes its own data. Plain Python runs it for one GPU; `--device cpu --tiny` all of it small.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from loaders import Loader, open_dataset
from loaders.residency import Residency
from loaders.sampling import Last
from tests.benchmarks.device_checks import check_all
from tests.benchmarks.device_set import write_images
from tests.benchmarks.device_setting import Setting, drawn_often, tiny
from tests.benchmarks.device_training import Step, endless, seconds_a_step, training_step

_PLACES: tuple[Residency, ...] = ("disk", "device")
_CHECKED = 1013
"""Images of the epochs that are checked: no multiple of a global batch."""


def gathered(value: Any) -> list[Any]:
    """Return what each rank gave, on every one; waits for all of them."""
    if not distributed.is_initialized():
        return [value]
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, value)
    return found


def check_epochs(scratch: Path, device: torch.device, rank: int) -> Iterator[str]:
    """Yield a line for each residency and kind of last batch: ranks share an epoch."""
    if rank == 0:
        write_images(scratch / "shared", _CHECKED, 32)
    gathered(None)
    dataset = open_dataset(scratch / "shared")
    for place in _PLACES:
        for last in ("drop", "pad"):
            yield _check_shares(dataset, place, last, device)  # type: ignore[arg-type]


def _check_shares(dataset: Any, place: Residency, last: Last, device: torch.device) -> str:
    loader = Loader(dataset, 16, device=device, residency=place, last=last, seed=3)
    whole = loader.world_size * loader.batch_size
    for _ in range(2):
        seen, steps = [], 0
        for batch in loader:
            numbers = [int(key.removesuffix(".png")) for key in batch["key"]]
            assert batch["image"].device == device
            stored = dataset.__getitems__(numbers)["image"]
            assert torch.equal(batch["image"].cpu(), stored), (place, last)
            if last == "pad":
                valid = batch["valid"].tolist()
                numbers = [n for n, known in zip(numbers, valid, strict=True) if known]
            seen += numbers
            steps += 1
        assert len({*gathered(steps)}) == 1, f"{place}, {last}: steps {gathered(steps)}"
        together = [number for own in gathered(seen) for number in own]
        assert len({*together}) == len(together), f"{place}, {last}: a sample came twice"
        expected = len(dataset) if last == "pad" else len(dataset) // whole * whole
        assert len(together) == expected, f"{place}, {last}: {len(together)} of {expected} samples"
    return (
        f"{loader.world_size} ranks, {place}, last={last!r}: {steps} steps each, "
        f"{expected} of {len(dataset)} samples, each once"
    )


def measure_training(setting: Setting, dataset: Any, rank: int, world: int) -> Iterator[str]:
    """Yield a line for each way to get batches: images a second of one GPU and of all of them."""
    alone = training_step(setting) if rank == 0 else None
    together = training_step(setting, _spread) if world > 1 else None
    for place in ("fixed batch", *_PLACES):
        # A batch that never changes shows how well the training itself is spread.
        served = "device" if place == "fixed batch" else place
        one = endless(setting, dataset, served, rank=0, world_size=1)
        every = endless(setting, dataset, served)
        if place == "fixed batch":
            one, every = repeat(next(one)), repeat(next(every))
        runs: list[tuple[float, float]] = []
        for number in range(setting.rounds + 1):
            found = (_seconds(setting, alone, one), _seconds(setting, together, every))
            if number:  # the first compiles
                runs.append(found)
        first = statistics.median(seconds for seconds, _ in runs)
        line = f"ResNet-50 {place:11} one {setting.batch_size / first:10,.1f} images/s"
        if together is not None:
            all_of_them = statistics.median(seconds for _, seconds in runs)
            ratios = [world * ours / theirs for ours, theirs in runs]
            line += (
                f", {world} together {world * setting.batch_size / all_of_them:10,.1f}: "
                f"{statistics.median(ratios):.3f} times ({min(ratios):.3f} to {max(ratios):.3f})"
                f"; wanted {0.95 * world:.2g}"
            )
        yield line


def _spread(model: Any) -> Any:
    return torch.nn.parallel.DistributedDataParallel(
        model, broadcast_buffers=False, gradient_as_bucket_view=True
    )


def _seconds(setting: Setting, step: Step | None, batches: Iterator[dict[str, Any]]) -> float:
    """Return the seconds of a step on the slowest of the ranks that make it."""
    gathered(None)
    own = 0.0 if step is None else seconds_a_step(setting, step, batches)
    return float(max(gathered(own)))


def measure(setting: Setting, scratch: Path, rank: int = 0, world: int = 1) -> Iterator[str]:
    """Check and measure all; yield the same lines on every rank.

    Args:
        setting: What is measured, and the device of this rank.
        scratch: An empty folder that all ranks see.
        rank: Of this process in the group, if there is one.
        world: Processes in it.
    """
    yield f"torch {torch.__version__}, {world} ranks"
    yield from check_epochs(scratch, setting.device, rank)
    own = scratch / f"rank {rank}"
    own.mkdir()
    for lines in zip(*gathered(check_all(own, setting.device)), strict=True):
        yield f"on each rank: {lines[0]}"
    if rank == 0:
        write_images(scratch / "images", setting.count, setting.side)
    gathered(None)
    dataset = drawn_often(setting, open_dataset(scratch / "images"))
    yield from measure_training(setting, dataset, rank, world)


def main() -> None:
    """Print all lines, on the first rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a few small images")
    parser.add_argument("--eager", action="store_true", help="do not compile the model")
    parser.add_argument("--scratch", type=Path, help="where the data is made")
    options = parser.parse_args()
    rank, world = 0, 1
    if distributed.is_torchelastic_launched():
        distributed.init_process_group("nccl" if options.device == "cuda" else "gloo")
        rank, world = distributed.get_rank(), distributed.get_world_size()
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    setting = Setting(device=device, compiled=not options.eager)
    if options.tiny:
        setting = tiny(device)
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        for line in measure(setting, Path(gathered(folder)[0]), rank, world):
            if rank == 0:
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
        gathered(None)  # nobody reads the first rank's folder any more
    if world > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
