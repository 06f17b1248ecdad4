"""The resize benchmark works: its reference is the definition, and a tiny run prints its tables."""

import numpy as np
import pytest

from preprocess.images.resize import FILTERS, Resample
from tests.benchmarks import resize_quality


@pytest.mark.parametrize("resample", FILTERS)
def test_the_reference_is_what_pillow_approaches(resample: Resample) -> None:
    photo = np.random.default_rng(2).integers(90, 160, (67, 91, 3), np.uint8)
    for size in ((23, 31), (150, 40), (91, 67)):
        exact = resize_quality.resize_exactly(photo, size, resample)
        pillow = resize_quality.resize_by_pillow(photo, size, resample)
        # Pillow rounds once an axis, and an axis may enlarge the error of the one before.
        assert np.abs(exact - pillow).max() <= 1.2
    assert np.abs(resize_quality.weights(10, 10, resample) - np.eye(10)).max() < 1e-12


def test_a_tiny_run_prints_every_filter_and_fit(capsys: pytest.CaptureFixture[str]) -> None:
    resize_quality.main(
        ["--count", "2", "--size", "240", "180", "--sides", "64", "--fit-side", "64"]
    )
    lines = capsys.readouterr().out.splitlines()
    filters = [line.split() for line in lines if " ours " in line]
    assert [words[0] for words in filters] == [*FILTERS]
    assert all(float(words[2]) > 50 for words in filters)  # decibels
    fits = [line.split()[0] for line in lines if "more than 1" in line]
    assert fits == ["crop", "pad", "stretch", "shortest", "longest", "bucket"]
