"""Datasets that several test files read; each is made once, by the product itself."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from preprocess import ImageOptions, RunOptions, images_to_shards
from tests.small_datasets import Made, prepare, write_source
from tests.sync import skip_sync
from tests.synthetic import write_image_tree

# A shell starts background jobs with SIGINT ignored, and programs that they start inherit that;
# tests that interrupt what they start need it as at a prompt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Small runs wait for the disk as long as they work. Programs that tests start as processes of
# their own do wait for it.
os.fsync = skip_sync

# A second thread waits longer for tensors this small than it helps.
torch.set_num_threads(1)

# How long an example takes says what else the machine does.
settings.register_profile("prep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("prep")


@pytest.fixture(scope="session")
def make_dataset(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that prepares a small folder of photos: 3 classes, 2 splits, 2 sizes."""
    photos = tmp_path_factory.mktemp("photos")
    write_image_tree(photos, ["ant", "bee", "cat"], 6, splits=["train", "validation"])
    made: dict[str, Path] = {}

    def make(container: str = "tensor", shard_nbytes: int = 22_000, fresh: bool = False) -> Path:
        name = f"{container}-{shard_nbytes}"
        if name in made and not fresh:
            return made[name]
        out = tmp_path_factory.mktemp("dataset") / "out"
        options = ImageOptions(sizes=((32, 32), (24, 16)))
        images_to_shards(
            photos, out, options, RunOptions(container=container, shard_nbytes=shard_nbytes)
        )
        return out if fresh else made.setdefault(name, out)

    return make


@pytest.fixture(params=["tensor", "zarr"])
def dataset_path(request: pytest.FixtureRequest, make_dataset: Callable[..., Path]) -> Path:
    """Return a dataset of several shards, in each container."""
    return make_dataset(request.param)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a function that gives a source and its dataset, of each kind and container once."""
    found: dict[tuple[str, str], tuple[Path, Path]] = {}

    def make(kind: str, container: str) -> tuple[Path, Path]:
        if (kind, container) not in found:
            folder = tmp_path_factory.mktemp("made")
            source, out = write_source(kind, folder), folder / "out"
            prepare(kind, container, source, out, "--limit", "15")
            found[kind, container] = source, out
        return found[kind, container]

    return make
