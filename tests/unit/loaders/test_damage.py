"""Files that are not as the manifest says: found when a dataset is opened, or first touched."""

import json
import pickle  # noqa: TID251 - as torch sends a dataset to its workers
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders import (
    ChecksumError,
    FormatError,
    MissingShardError,
    TableEncoder,
    open_dataset,
    open_table,
)
from loaders import open_tokens as open_token_dataset
from loaders.format.files import crc32c_digits, to_json
from loaders.format.promised import promised_files
from loaders.format.spec import read_manifest
from tests.small_datasets import KINDS, Made, flip_bit

CONTAINERS = ["tensor", "zarr"]


def open_any(kind: str, path: Path, split: str = "train", *, verify: bool = False) -> Any:
    """Open a dataset as samples that show every stored field."""
    if kind.endswith("images"):
        return open_dataset(path, split=split, size=24, verify=verify)
    if kind.endswith("table"):
        return open_table(path, split, verify=verify)
    data = open_token_dataset(path, split, verify=verify)
    return data.packed() if kind.startswith("shuffled") else data.documents()


def touched(kind: str, path: Path, split: str = "train") -> list[Path]:
    """Return the files of a split that reading all of its samples touches."""
    unseen = "_32" if kind.endswith("images") else "nothing"
    files = promised_files(path, read_manifest(path), split)
    return [file.path for file in files if file.shard and unseen not in str(file.path)]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_cut_and_every_longer_file_is_found_when_a_dataset_is_opened(
    kind: str, container: str, made: Made, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(made(kind, container)[1], tmp_path / "out"))
    random_ = random.Random(kind)
    files = list(promised_files(out, read_manifest(out), "train"))
    assert len(files) > 6
    for file in files:
        data = file.path.read_bytes()
        lengths = {0, len(data) - 1, random_.randrange(len(data))} if data else set()
        for changed in (*(data[:length] for length in lengths), data + b"\0", data + data + b"x"):
            file.path.write_bytes(changed)
            with pytest.raises(FormatError, match=r"bytes, manifest says|JSON|CRC-32C") as caught:
                open_any(kind, out)
            assert str(file.path) in str(caught.value)
        file.path.unlink()
        with pytest.raises(MissingShardError, match=r"missing; copy it again|not found"):
            open_any(kind, out)
        file.path.write_bytes(data)
    open_any(kind, out)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_an_error_on_first_touch_when_checksums_are_compared(
    kind: str, container: str, made: Made, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(made(kind, container)[1], tmp_path / "out"))
    random_ = random.Random(kind)
    for path in touched(kind, out):
        size = path.stat().st_size
        if size == 0:
            continue
        bit = random_.randrange(8 * size)
        flip_bit(path, bit)
        ds = open_any(kind, out, verify=True)
        with pytest.raises(ChecksumError, match=r"CRC-32C \w+, manifest says .*prep repair"):
            [ds[index] for index in range(len(ds))]
        again = pickle.loads(pickle.dumps(ds))
        with pytest.raises(ChecksumError):
            [again[index] for index in range(len(ds))]
        flip_bit(path, bit)
        for verify in (False, True):
            ds = open_any(kind, out, verify=verify)
            assert ds.__getitems__(list(range(len(ds))))


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_outside_the_folder_is_read_through_a_link(
    kind: str, container: str, made: Made, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(made(kind, container)[1], tmp_path / "out"))
    (tmp_path / "elsewhere").mkdir()
    for path in (*touched(kind, out), out / "manifest.json"):
        if path.stat().st_size == 0:
            continue
        other = tmp_path / "elsewhere/file"
        shutil.move(path, other)
        path.symlink_to(other)
        with pytest.raises(FormatError, match="a link leads out of the dataset"):
            [
                sample
                for ds in [open_any(kind, out)]
                for sample in map(ds.__getitem__, range(len(ds)))
            ]
        path.unlink()
        shutil.move(other, path)
    shutil.move(out / "train", tmp_path / "elsewhere/train")
    (out / "train").symlink_to(tmp_path / "elsewhere/train")
    with pytest.raises(FormatError, match="a link leads out of the dataset"):
        open_any(kind, out)[0]


def test_a_dataset_behind_a_link_and_links_within_it_are_read(made: Made, tmp_path: Path) -> None:
    out = Path(shutil.copytree(made("images", "tensor")[1], tmp_path / "out"))
    shard = touched("images", out)[0]
    (out / "kept").mkdir()
    shutil.move(shard, out / "kept/shard")
    shard.symlink_to("../kept/shard")
    (tmp_path / "link").symlink_to(out)
    there, here = open_any("images", tmp_path / "link"), open_any("images", out)
    assert np.array_equal(there[0]["image"], here[0]["image"])


def state(out: Path, name: str, value: Any) -> None:
    """Let a manifest that is otherwise whole state something else in its recipe."""
    path = out / "manifest.json"
    found = json.loads(path.read_bytes())
    del found["crc32c"]
    found["recipe"][name] = value
    path.write_bytes(to_json({**found, "crc32c": crc32c_digits(to_json(found))}))


@pytest.mark.parametrize("value", [None, -1, 256, 1.0, True, "7", [], {}])
def test_a_padding_that_masks_cannot_hold_is_refused(
    value: Any, made: Made, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(made("ragged images", "tensor")[1], tmp_path / "out"))
    state(out, "mask_padding", value)
    with pytest.raises(
        FormatError, match=r"recipe.mask_padding: got .*expected an integer in 0..255"
    ):
        open_any("ragged images", out)
    photos = Path(shutil.copytree(made("images", "tensor")[1], tmp_path / "photos"))
    state(photos, "mask_padding", value)
    assert open_any("images", photos)[0]  # it has no masks


@pytest.mark.parametrize("name", ["text", "null_values"])
@pytest.mark.parametrize("value", [None, 1, "note", {}, [1], [None]])
def test_an_encoder_refuses_names_that_are_none(
    name: str, value: Any, made: Made, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(made("table", "tensor")[1], tmp_path / "out"))
    state(out, name, value)
    with pytest.raises(FormatError, match=rf"recipe.{name}: got .*expected (an array|a string)"):
        TableEncoder(out)
