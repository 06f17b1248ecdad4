"""What is checked on a device is what it should be, and what is left out is said."""

from pathlib import Path

import numpy as np
import pytest
import torch

from loaders import open_dataset
from tests.benchmarks import device_pictures
from tests.benchmarks.device_pictures import SHAPES, WAYS, check_pictures, write_pictures


@pytest.mark.parametrize("name", WAYS)
def test_pictures_come_back_as_they_were_made(name: str, tmp_path: Path) -> None:
    way = WAYS[name]
    dataset = open_dataset(write_pictures(tmp_path / "out", way, 40))
    assert len(dataset.manifest.splits["train"].counts) == 2
    far = 40 if way.encoding is not None and way.encoding.codec == "jpeg" else 0
    for number in range(40):
        sample = dataset[number]
        image = sample["image"].permute(1, 2, 0).numpy().astype(int)
        made = device_pictures._picture(number, way).astype(int)
        assert sample["key"] == f"{number:08d}.png"
        assert np.abs(image - made).mean() <= far
    counts = list(dataset.buckets.values())
    assert len(counts) == (len(SHAPES) if way.buckets else 0)
    assert all(counts)


def test_what_a_machine_cannot_decode_is_said_and_the_rest_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = {"numcodecs", "simplejpeg", "zarr", "zstandard"}
    monkeypatch.setattr(device_pictures, "find_spec", lambda name: name not in lacking or None)
    lines = list(check_pictures(tmp_path, torch.device("cpu"), ["disk", "device"]))
    left_out = [line for line in lines if "NOT CHECKED" in line]
    assert len(left_out) == sum(bool(way.needs) for way in WAYS.values())
    assert "zstd: NOT CHECKED, zarr and numcodecs and zstandard not installed here" in left_out
    assert sum("the batches of the CPU" in line for line in lines) == 2
    assert sum("refused: " in line for line in lines) == 1
