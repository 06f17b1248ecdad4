"""What is measured with a device, and how a call or an epoch is timed there."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from loaders import Loader
from loaders.residency import Residency


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured.

    Attributes:
        device: Where batches go.
        count: Images.
        passes: How often an epoch of a `Loader` draws each of them: its start and end are then a
            small part of it, as in training.
        side: Of an image, in pixels.
        batch_size: Of a batch.
        steps: Training steps in a round.
        rounds: Repetitions, of which medians are taken.
        part: Of the channels of ResNet-50, one in so many.
        compiled: Whether the model is.
        swept: Whether other constants than ours are tried too.
    """

    device: torch.device
    count: int = 16_384
    passes: int = 8
    side: int = 224
    batch_size: int = 256
    steps: int = 60
    rounds: int = 3
    part: int = 1
    compiled: bool = True
    swept: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of a stored image."""
        return self.side * self.side * 3

    @property
    def places(self) -> list[Residency]:
        """Residencies that are measured."""
        return ["disk", "pinned", "device"] if self.device.type == "cuda" else ["disk", "device"]


def tiny(device: torch.device, *, swept: bool = False) -> Setting:
    """Return a setting that shows in seconds that all of it works."""
    return Setting(
        device=device,
        count=64,
        passes=2,
        side=32,
        batch_size=8,
        steps=1,
        rounds=1,
        part=16,
        compiled=False,
        swept=swept,
    )


def synchronize(setting: Setting) -> None:
    """Wait for the device."""
    if setting.device.type == "cuda":
        torch.cuda.synchronize(setting.device)


def seconds_of(setting: Setting, call: Callable[[], object], times: int = 20) -> float:
    """Return the seconds that a call takes on the device: the median of rounds of `times` calls."""
    call()
    found = []
    for _ in range(max(3, setting.rounds)):
        synchronize(setting)
        begin = time.perf_counter()
        for _ in range(times):
            call()
        synchronize(setting)
        found.append((time.perf_counter() - begin) / times)
    return statistics.median(found)


def drawn_often(setting: Setting, dataset: Any) -> Any:
    """Return a dataset of the same images, each `passes` times."""
    return dataset.select(np.tile(np.arange(len(dataset)), setting.passes))


def epoch_rates(setting: Setting, loader: Loader) -> list[float]:
    """Return the images a second of some epochs after the first."""
    found = []
    for epoch in range(setting.rounds + 1):
        synchronize(setting)
        begin, images = time.perf_counter(), 0
        for batch in loader:
            images += len(batch["image"])
        synchronize(setting)
        if epoch:
            found.append(images / (time.perf_counter() - begin))
    return found
