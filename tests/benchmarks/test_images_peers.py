"""The comparison with other loaders of images works, and refuses who serves other images."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from loaders import open_dataset
from tests.benchmarks import images_peers, step_wait
from tests.benchmarks.device_set import write_images
from tests.benchmarks.images_peers import OPTIONS, OURS, Server, best_of_each
from tests.benchmarks.images_peers_serve import PEERS, Asked, _check, _timed
from tests.benchmarks.rounds import report, show

SIDE = 8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images") / "ours", 20, SIDE)


def served(dataset: Path, orders: list[list[int]]) -> Iterator[torch.Tensor]:
    stored = open_dataset(dataset, size=SIDE)
    for order in orders:
        batch = stored.__getitems__(order)["image"]
        yield torch.from_numpy(np.ascontiguousarray(batch.permute(0, 2, 3, 1).numpy()))


def test_images_peers_measures_ours_and_every_package_has_an_option(dataset: Path) -> None:
    runs, count = images_peers.measure(dataset, SIDE, batch_size=3, rounds=2, pythons={})
    assert count == 18
    assert [*runs] == [OURS]
    show(report("tiny", runs, count=count, unit="images", reference=OURS))
    assert {name for names in OPTIONS.values() for name in names} == set(PEERS)


def test_a_peer_that_fails_says_why(dataset: Path) -> None:
    missing = "import sys; print('no such package', file=sys.stderr); sys.exit(3)"
    with pytest.raises(RuntimeError, match=r"exit code 3\nno such package"):
        Server([sys.executable, "-c", missing])


def test_the_best_setting_of_each_package_counts() -> None:
    runs = {OURS: [1.0, 2.0], "Grain, ArrayRecord, 0 workers": [9.0, 9.0]}
    runs |= {"Grain, mapped .npy, 2 workers": [4.0, 6.0], "tensordict, 0 workers": [2.0, 2.0]}
    grain, tensordict = best_of_each(runs)
    assert "3.5 times (3.0 to 4.0) the rate of grain's best: Grain, mapped .npy, 2" in grain
    assert "1.5 times (1.0 to 2.0) the rate of tensordict's best" in tensordict


def test_an_epoch_of_a_peer_is_checked_and_timed(dataset: Path) -> None:
    asked = Asked(str(dataset), "", 3, 0)
    order = np.random.default_rng(0).permutation(18).reshape(6, 3).tolist()
    assert _check(asked, lambda: served(dataset, order)) == 6
    assert _timed(lambda: served(dataset, order), 6, 6) > 0
    with pytest.raises(ValueError, match="15 images in 6 batches"):
        _check(asked, lambda: served(dataset, [*order[:5], order[0]]))
    with pytest.raises(ValueError, match="of them new"):
        _check(asked, lambda: (images + 1 for images in served(dataset, order)))
    with pytest.raises(ValueError, match=r"torch.int64, expected \(3, 8, 8, 3\) uint8"):
        _check(asked, lambda: (images.long() for images in served(dataset, order)))


def test_step_wait_measures_steps_and_first_batches(dataset: Path) -> None:
    found, firsts = step_wait.measure(dataset, SIDE, batch_size=3, step_seconds=0.0, rounds=2)
    assert [len(epochs) for epochs in found.values()] == [2, 2]
    assert all(len(epoch.waits) == 5 for epochs in found.values() for epoch in epochs)
    assert len(firsts) == 6
    show([f"tiny: {found}, first batches {firsts} ms"])


@pytest.mark.parametrize("name", ["images_peers", "step_wait"])
def test_a_benchmark_runs_from_the_command_line(name: str) -> None:
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", "--help"]
    assert "usage" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
