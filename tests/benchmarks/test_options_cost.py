"""The benchmark of options works: runs are what they are named for; no time is judged."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import options_cost
from tests.benchmarks.options_cost import PLAIN, WAYS, Setting, Way
from tests.benchmarks.paired_inputs import CLASSES, with_profile
from tests.benchmarks.rounds import report, show

TINY = Setting(count=3, photo_size=(96, 64), sizes=(16, 32), rounds=2)


def test_every_way_does_what_it_is_named_for(tmp_path: Path) -> None:
    from loaders import open_dataset
    from preprocess.images.decode import decode_image
    from preprocess.images.masks import decode_mask
    from preprocess.images.resize import fit_sizes

    inputs = options_cost.prepare(TINY, tmp_path)
    made = {}
    for name, way in WAYS.items():
        done = options_cost.run_way(TINY, way, inputs, tmp_path / "made" / name)
        options_cost.check(TINY, way, done)
        made[name] = open_dataset(done.out, size=32)[0]
    photo = sorted(inputs.photos.iterdir())[0]
    mask = decode_mask((inputs.masks / photo.name).with_suffix(".png").read_bytes(), 10**6)
    assert mask.shape == (64, 96)
    assert set(np.unique(made["masks"]["mask"])) <= set(np.unique(mask)) <= set(range(CLASSES))
    assert len(np.unique(mask)) > 1
    for name in (PLAIN, "grey", "profiles to sRGB"):
        folder = inputs.profiled if WAYS[name].profiled else inputs.photos
        pixels = decode_image((folder / photo.name).read_bytes(), key=photo.name)
        (fitted,) = fit_sizes(pixels, [(32, 32)], grayscale=name == "grey")
        np.testing.assert_array_equal(made[name]["image"], fitted.transpose(2, 0, 1))
    np.testing.assert_array_equal(made["profiles ignored"]["image"], made[PLAIN]["image"])
    np.testing.assert_array_equal(made["masks"]["image"], made[PLAIN]["image"])
    assert not np.array_equal(made["profiles to sRGB"]["image"], made[PLAIN]["image"])
    np.testing.assert_array_equal(made["all three"]["mask"], made["masks"]["mask"])


@pytest.mark.parametrize(
    "other", [WAYS["grey"], WAYS["masks"], WAYS["profiles to sRGB"]], ids=["grey", "masks", "icc"]
)
def test_a_run_that_did_something_else_is_not_measured(tmp_path: Path, other: Way) -> None:
    inputs = options_cost.prepare(TINY, tmp_path)
    done = options_cost.run_way(TINY, WAYS[PLAIN], inputs, tmp_path / "out")
    options_cost.check(TINY, WAYS[PLAIN], done)
    with pytest.raises(RuntimeError, match="instead of"):
        options_cost.check(TINY, other, done)


def test_photos_that_are_no_jpeg_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a\.png is no JPEG"):
        with_profile(b"\x89PNG", b"", "a.png")


def test_what_is_added_is_paired_by_round_and_set_against_what_it_takes_alone() -> None:
    runs = {name: [1.0, 2.0, 4.0] for name in WAYS}
    runs["masks"] = [1.5, 2.0, 5.0]
    runs |= {options_cost.LUMA: [0.1] * 3, options_cost.CONVERSION: [0.2] * 3}
    runs[options_cost.MASKS] = [0.5, 0.4, 0.5]
    assert options_cost.added(runs, "masks", 10) == [50, 0, 100]
    assert options_cost.own(runs, "masks", 10) == [50, 40, 50]
    assert options_cost.own(runs, "all three", 10) == pytest.approx([80, 70, 80])
    title, head, plain, *rows = options_cost.table("title", runs, 10)
    assert title == "title"
    assert "added / alone" in head
    assert " ".join(plain.split()) == "plain 1.00 (1.00 to 1.00) 0.00 (0.00 to 0.00) - -"
    masks = next(row for row in rows if row.strip().startswith("masks"))
    assert "1.25 (1.00 to 1.50)" in masks
    assert "50.00 (0.00 to 100.00)" in masks
    assert "50.00 (40.00 to 50.00)" in masks
    assert masks.endswith("1.00 (0.00 to 2.00)")


def test_a_tiny_run_measures_every_way_and_what_each_takes_alone(tmp_path: Path) -> None:
    inputs = options_cost.prepare(TINY, tmp_path)
    wall, processors = options_cost.measure(TINY, inputs, tmp_path)
    alone = [options_cost.LUMA, options_cost.CONVERSION, options_cost.MASKS]
    assert list(wall) == list(processors) == [*WAYS, *alone]
    for runs in (wall, processors):
        assert {len(seconds) for seconds in runs.values()} == {TINY.rounds}
        assert len(options_cost.table("tiny", runs, TINY.count)) == 2 + len(WAYS)
        show(report("tiny", runs, count=TINY.count, unit="photos", reference=PLAIN))
        show(options_cost.table("tiny", runs, TINY.count))
    written = [(tmp_path / f"masks.{share}.32").stat().st_size for share in range(2)]
    assert sum(written) == TINY.count * 32 * 32


def test_it_runs_from_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.options_cost", "--help"]
    assert "usage" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
