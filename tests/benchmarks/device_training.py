"""Steps of ResNet-50 in bfloat16 on batches of a `Loader`, and the seconds that they take."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from loaders import Loader, Normalize
from loaders.residency import Residency
from tests.benchmarks.device_set import CLASSES
from tests.benchmarks.device_setting import Setting, synchronize
from tests.benchmarks.resnet import resnet50

_FIRST = 5
"""Steps before the clock starts."""

Step = Callable[[dict[str, Any]], None]


def training_step(setting: Setting, spread: Callable[[Any], Any] | None = None) -> Step:
    """Return what trains a model of its own on a batch.

    Args:
        setting: Says which part of ResNet-50, and whether it is compiled.
        spread: Makes of the model one that trains on several devices.
    """
    torch.manual_seed(0)
    model: Any = resnet50(CLASSES, part=setting.part).to(setting.device, torch.bfloat16)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    forward: Any = torch.compile(model, dynamic=False) if setting.compiled else model
    if spread is not None:
        forward = spread(forward)  # around the whole graph: inside, it would be cut at each bucket

    def step(batch: dict[str, Any]) -> None:
        loss = torch.nn.functional.cross_entropy(forward(batch["image"]).float(), batch["label"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def endless(
    setting: Setting, dataset: Any, place: Residency, **options: int
) -> Iterator[dict[str, Any]]:
    """Yield normalized batches of epoch after epoch; `options` are those of the `Loader`."""
    loader = Loader(
        dataset,
        setting.batch_size,
        device=setting.device,
        residency=place,
        normalize=Normalize.for_dataset(dataset, dtype=torch.bfloat16),
        **options,  # type: ignore[arg-type]
    )
    while True:
        yield from loader


def seconds_a_step(setting: Setting, step: Step, batches: Iterator[dict[str, Any]]) -> float:
    """Return the seconds of a step, over `setting.steps` of them after a few others."""
    for _ in range(_FIRST):
        step(next(batches))
    synchronize(setting)
    begin = time.perf_counter()
    for _ in range(setting.steps):
        step(next(batches))
    synchronize(setting)
    return (time.perf_counter() - begin) / setting.steps
