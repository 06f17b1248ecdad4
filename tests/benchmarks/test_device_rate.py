"""The benchmark of a `Loader` with a GPU works: a tiny run on the CPU that judges no time."""

from pathlib import Path

import pytest
import torch

from tests.benchmarks import device_rate
from tests.benchmarks.device_setting import tiny
from tests.benchmarks.resnet import resnet50


@pytest.mark.slow
def test_device_rate_checks_and_measures_every_residency(tmp_path: Path) -> None:
    setting = tiny(torch.device("cpu"), swept=True)
    lines = list(device_rate.measure(setting, tmp_path))
    print(*lines, sep="\n")
    assert sum(line.startswith("refused: ") for line in lines) == 3
    for start, count in (
        ("gather + normalize", 1),
        ("Loader ", 4),
        ("ResNet-50", 3),
        ("sweep", 18),
    ):
        assert sum(line.startswith(start) for line in lines) >= count, start


def test_the_model_is_resnet_50() -> None:
    with torch.device("meta"):
        model = resnet50(1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
