"""Rates with other constants than ours, which were chosen by such a run."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from loaders import Loader, Normalize, device_rows, feed
from loaders.resident import Resident
from tests.benchmarks.device_setting import Setting, drawn_often, epoch_rates, seconds_of


def sweep(setting: Setting, dataset: Any, links: dict[str, float]) -> Iterator[str]:
    """Yield a line for each constant and value."""
    normalize = Normalize.for_dataset(dataset, dtype=torch.bfloat16).to(setting.device)
    size = 8 * setting.batch_size
    index = torch.randint(0, len(dataset), (size,), device=setting.device)
    tried: dict[str, list[tuple[str, tuple[int, ...]]]] = {
        "pinned": [("_PROGRAMS", (16, 32, 64, 128, 256)), ("_VALUES", (2048, 4096, 8192, 16384))],
        "device": [
            ("_PROGRAMS_EACH", (2, 4, 8, 16, 64, 1024)),
            ("_VALUES", (1024, 2048, 4096, 8192)),
            ("_WARPS", (2, 4, 8)),
        ],
    }
    for place in (place for place in setting.places if place in tried):
        resident = Resident(dataset, place, setting.device, lambda _: None)  # type: ignore[arg-type]
        for name, values in tried[place]:
            for value in values:
                with patched(device_rows, name, value):
                    seconds = seconds_of(
                        setting, lambda r=resident: r.take(index, {"image": normalize}), 5
                    )
                rate = size / seconds
                share = rate * setting.nbytes / links["link"]
                yield f"sweep {place} {name}={value}: {rate:,.0f} images/s, {share:.3f} of the link"
        del resident
    often = drawn_often(setting, dataset)
    for name, values in (
        ("_MOST_THREADS", (2, 4, 8, 12, 16)),
        ("_PIECE", (1 << 21, 1 << 22, 1 << 23, 1 << 25)),
        ("_SLOTS_AHEAD", (1, 2, 6)),
    ):
        for value in values:
            with patched(feed, name, value):
                loader = Loader(
                    often, setting.batch_size, device=setting.device, normalize=normalize
                )
                rate = statistics.median(epoch_rates(setting, loader))
            yield f"sweep disk {name}={value}: {rate:,.0f} images/s"


@contextmanager
def patched(module: Any, name: str, value: int) -> Iterator[None]:
    """Let a constant have another value for a while."""
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)
