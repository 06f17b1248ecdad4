"""Laws of datasets that grow: however a folder comes in parts, every sample is there once."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders import open_dataset
from loaders.format.promised import promised_files
from loaders.format.spec import Manifest, read_manifest
from preprocess.check import check_dataset
from preprocess.images.beside import SplitOptions
from preprocess.images.options import ImageOptions
from preprocess.images.prepare import images_to_shards
from preprocess.plan import RunOptions
from preprocess.repair import repair_dataset
from tests.synthetic import write_image_tree

SHARED = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 14 photos of 2 classes, one of them cut."""
    folder = tmp_path_factory.mktemp("photos")
    write_image_tree(folder, ["cat", "dog"], 7)
    damaged = sorted(path for path in folder.rglob("*") if path.is_file())[3]
    damaged.write_bytes(damaged.read_bytes()[:100])
    return folder


def samples(out: Path) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return split -> key -> what a sample holds; each key is there once."""
    found: dict[str, dict[str, tuple[Any, ...]]] = {}
    for split in read_manifest(out).splits:
        ds = open_dataset(out, split=split, verify=True)
        rows = [ds[index] for index in range(len(ds))]
        found[split] = {row["key"]: (row["image"].numpy().tobytes(), row["label"]) for row in rows}
        assert len(found[split]) == len(rows) == ds.manifest.splits[split].count
    return found


def facts(manifest: Manifest) -> dict[str, tuple[Any, ...]]:
    """Return what is counted over all samples, which no order changes."""
    return {
        name: (split.statistics, split.class_counts, split.tallies, split.count)
        for name, split in manifest.splits.items()
    }


def bytes_of(out: Path) -> dict[Path, tuple[bytes, int]]:
    """Return the bytes of each shard file, and which file it is."""
    manifest = read_manifest(out)
    paths = [file.path for file in promised_files(out, manifest) if file.shard is not None]
    return {path: (path.read_bytes(), path.stat().st_ino) for path in paths}


@SHARED
@given(data=st.data())
def test_a_folder_that_comes_in_parts_gives_the_samples_of_one_that_is_there_at_once(
    photos: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    names = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.*"))
    parts = data.draw(st.integers(2, 4))
    part_of = data.draw(
        st.lists(st.integers(0, parts - 1), min_size=len(names), max_size=len(names))
    )
    options = ImageOptions(
        sizes=((16, 16),),
        fit=data.draw(st.sampled_from(["crop", "longest"])),
        splits=SplitOptions(validation=data.draw(st.sampled_from([0.0, 0.3]))),
    )
    run = {
        "container": data.draw(st.sampled_from(["tensor", "zarr"])),
        "shard_nbytes": data.draw(st.sampled_from([1, 2500, 100_000])),
    }
    whole = RunOptions(**run)
    source, out = folder / "source", folder / "out"
    # Of each class and split there is one at first: no later part brings a new class or split.
    first = {"cat": names[:3], "dog": names[-4:]}
    held = set(first["cat"] + first["dog"])
    shards: dict[Path, tuple[bytes, int]] = {}
    for part in range(parts):
        for name, chosen in zip(names, part_of, strict=True):
            if (0 if name in held else chosen) == part:
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(photos / name, source / name)
        report = images_to_shards(source, out, options, RunOptions(**run, append=part > 0))
        assert shards.items() <= bytes_of(out).items()
        shards = bytes_of(out)
        found = sum(1 for path in source.rglob("*") if path.is_file())
        assert sum(report.samples.values()) + len(report.skipped) == found

    images_to_shards(source, folder / "once", options, whole)
    assert samples(out) == samples(folder / "once")
    assert facts(read_manifest(out)) == facts(read_manifest(folder / "once"))
    assert sorted((out / "skipped.jsonl").read_text().splitlines()) == sorted(
        (folder / "once" / "skipped.jsonl").read_text().splitlines()
    )
    assert not check_dataset(out, full=True).problems
    _repair_all(out, source, data)


def _repair_all(out: Path, source: Path, data: st.DataObject) -> None:
    """Cut some files; repair makes them again, whichever run wrote them."""
    before = {path: stored for path, (stored, _) in bytes_of(out).items()}
    for path, stored in before.items():
        if data.draw(st.booleans()):
            path.write_bytes(stored[:-1])
    repair_dataset(out, source)
    assert {path: stored for path, (stored, _) in bytes_of(out).items()} == before
