"""Pictures in buckets: dense batches of one shape, alike on every rank, exactly resumed."""

import copy
import json
import pickle  # noqa: TID251 - what worker processes do
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image  # noqa: TID253 - a test may write what it compares
from torch.utils.data import DataLoader

from loaders import (
    Augment,
    BucketBatches,
    FormatError,
    Loader,
    Mix,
    Normalize,
    SelectionError,
    Weighted,
    open_dataset,
)
from loaders.format.files import crc32c_digits, to_json
from loaders.format.recorded_buckets import recorded_shapes
from preprocess import ImageOptions, RunOptions, images_to_shards
from preprocess.images.buckets import bucket_shapes, nearest_bucket
from preprocess.images.resize import fit_sizes

SIZES = [(20 + 13 * n % 47, 20 + 7 * n % 53) for n in range(40)]
SHAPES = bucket_shapes(32, 8, 2.0)


def pixels(number: int) -> NDArray[np.uint8]:
    width, height = SIZES[number]
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)


def shape_of(number: int) -> tuple[int, int]:
    return nearest_bucket(SHAPES, *SIZES[number])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("buckets")
    images, boxes = [], []
    for number, (width, height) in enumerate(SIZES):
        name = f"{'ab'[number % 2]}/{number:02d}.png"
        for place, data in (("photos", pixels(number)), ("masks", pixels(number)[:, :, 0] % 21)):
            (folder / place / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(data).save(folder / place / name)
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        box = {"bbox": [width // 2, height // 2, 4, 4], "category_id": 1}
        boxes += [{"image_id": number, **box} for _ in range(number % 3)]
    document = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "bug"}]}
    (folder / "boxes.json").write_text(json.dumps(document))
    return folder / "photos"


def prepare(photos: Path, out: Path, container: Any = "tensor", **options: Any) -> Path:
    chosen = ImageOptions(sizes=((32, 32), (16, 16)), fit="bucket", bucket_step=8, **options)
    images_to_shards(photos, out, chosen, RunOptions(container=container, shard_nbytes=20_000))
    return out


@pytest.fixture(scope="module", params=["tensor", "zarr"])
def stored(photos: Path, request: pytest.FixtureRequest) -> Path:
    return prepare(photos, photos.parent / request.param, request.param)


@pytest.fixture
def ds(stored: Path) -> Any:
    return open_dataset(stored, size=32)


def numbers(batch: dict[str, Any]) -> list[int]:
    return [int(key[2:4]) for key in batch["key"]]


def test_every_batch_has_the_pictures_of_one_bucket_as_one_tensor(ds: Any) -> None:
    assert len(ds.manifest.splits["train"].counts) > 2
    loader = Loader(ds, 3, last="pad", seed=1)
    seen: list[int] = []
    for batch in loader:
        image = batch["image"]
        width, height = shape_of(numbers(batch)[0])
        assert image.shape == (3, 3, height, width)
        assert image.dtype == torch.uint8
        assert image.is_contiguous(memory_format=torch.channels_last)
        for number, picture, transform in zip(
            numbers(batch), image, batch["transform"], strict=True
        ):
            (expected,) = fit_sizes(pixels(number), [shape_of(number)], fit="crop")
            assert np.array_equal(picture.permute(1, 2, 0).numpy(), expected)
            assert transform[:2].tolist() == [*SIZES[number]]
            assert transform[6:].tolist() == [0, 0, width, height]
        seen += [n for n, known in zip(numbers(batch), batch["valid"], strict=True) if known]
    assert sorted(seen) == [*range(len(SIZES))]


def test_buckets_and_single_pictures_are_what_they_should_be(ds: Any) -> None:
    expected = Counter(map(shape_of, range(len(SIZES))))
    assert ds.buckets == {shape: expected[shape] for shape in SHAPES}
    assert len([count for count in ds.buckets.values() if count]) >= 3
    for number in range(len(SIZES)):
        sample = ds[number]
        width, height = shape_of(numbers({"key": [sample["key"]]})[0])
        assert sample["image"].shape == (3, height, width)
    small = ds.with_size(16)
    assert [*small.buckets] == [*bucket_shapes(16, 8, 2.0)]
    assert sum(small.buckets.values()) == len(ds)


def test_statistics_are_over_all_buckets(ds: Any) -> None:
    rows = np.concatenate([ds[n]["image"].numpy().reshape(3, -1) for n in range(len(ds))], axis=1)
    assert np.allclose(ds.mean, rows.mean(axis=1) / 255)
    assert np.allclose(ds.std, rows.std(axis=1) / 255)


@pytest.mark.parametrize("last", ["drop", "pad", "wrap"])
def test_ranks_have_the_same_shape_at_each_step_and_share_an_epoch(ds: Any, last: Any) -> None:
    ranks = [Loader(ds, 2, rank=r, world_size=3, last=last, seed=4) for r in range(3)]
    assert len({len(rank) for rank in ranks}) == 1
    seen: list[int] = []
    steps = 0
    for batches in zip(*ranks, strict=True):
        steps += 1
        assert len({batch["image"].shape for batch in batches}) == 1
        for batch in batches:
            known = batch.get("valid", torch.ones(2, dtype=torch.bool)).tolist()
            seen += [n for n, k in zip(numbers(batch), known, strict=True) if k]
    assert steps == len(ranks[0])
    if last == "pad":
        assert sorted(seen) == [*range(len(SIZES))]
    elif last == "drop":
        assert len(set(seen)) == len(seen) == sum(n - n % 6 for n in ds.buckets.values())
    else:
        assert set(seen) == {*range(len(SIZES))}


@pytest.mark.parametrize("options", [{}, {"drop_last": False}, {"last": "wrap"}, {"last": "pad"}])
@pytest.mark.parametrize("shuffle", [True, False])
def test_saved_at_any_batch_a_new_loader_goes_on_as_if_nothing_had_happened(
    ds: Any, options: dict[str, Any], shuffle: bool
) -> None:
    def new() -> Loader:
        return Loader(ds, 3, seed=7, shuffle=shuffle, **options)

    loader = new()
    whole, states = [], [loader.state_dict()]
    for _ in range(2):
        for batch in loader:
            whole.append(numbers(batch))
            states.append(loader.state_dict())
    for done, state in enumerate(states):
        again = new()
        again.load_state_dict(json.loads(json.dumps(state)))
        rest = [numbers(batch) for _ in range(2) for batch in again]
        assert rest[: len(whole) - done] == whole[done:]
    epochs = len(whole) // 2
    assert (whole[:epochs] != whole[epochs:]) == shuffle


def test_a_state_serves_another_batch_size_and_number_of_ranks(ds: Any) -> None:
    loader = Loader(ds, 3, seed=2, last="pad")
    batches = iter(loader)
    before = [n for _ in range(5) for n in numbers(next(batches))]
    state = loader.state_dict()
    assert sum(state["buckets"]) == state["samples"] == len(set(before))
    batches.close()
    ranks = [Loader(ds, 2, seed=2, rank=r, world_size=2, last="pad") for r in range(2)]
    after: list[int] = []
    for rank in ranks:
        rank.load_state_dict(state)
        for batch in rank:
            after += [n for n, k in zip(numbers(batch), batch["valid"], strict=True) if k]
    assert sorted({*before, *after}) == [*range(len(SIZES))]
    assert len(set(before)) + len(after) == len(SIZES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buckets": [1, 0]}, "buckets is .*, expected samples of each of 3 buckets, 3 in all"),
        ({"buckets": [999, 0, 0]}, "buckets is"),
        ({"buckets": [1, 1, 0]}, "buckets is"),
        ({"buckets": [3.0, 0, 0]}, "buckets is"),
        ({"buckets": "300"}, "buckets is"),
        ({"buckets": None}, "buckets is"),
    ],
)
def test_states_that_cannot_be_are_refused(ds: Any, change: dict[str, Any], message: str) -> None:
    loader = Loader(ds, 3)
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(SelectionError, match=message):
        Loader(ds, 3).load_state_dict({**state, **change})
    del state["buckets"]
    with pytest.raises(SelectionError, match="no 'buckets'"):
        Loader(ds, 3).load_state_dict(state)


def test_selections_keep_their_buckets(ds: Any) -> None:
    square = [n for n in range(len(ds)) if ds[n]["image"].shape == (3, 32, 32)]
    chosen = ds.select([*square, *square])
    assert chosen.buckets == {shape: 2 * len(square) * (shape == (32, 32)) for shape in SHAPES}
    assert next(iter(Loader(chosen, 2 * len(square))))["image"].shape[2:] == (32, 32)
    only = ds.subset("class", "a")
    found = [n for batch in Loader(only, 2, drop_last=False) for n in numbers(batch)]
    assert sorted(found) == [*range(0, len(SIZES), 2)]
    again = pickle.loads(pickle.dumps(only))
    assert again.buckets == only.buckets


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_of_torch_takes_batches_of_one_bucket(ds: Any, workers: int) -> None:
    options = {"seed": 3, "rank": 1, "world_size": 2, "last": "wrap"}
    batches = BucketBatches(ds, 2, **options)
    loader = DataLoader(ds, batch_sampler=batches, num_workers=workers)
    assert len(loader) == len(Loader(ds, 2, **options))
    for epoch in range(2):
        expected = Loader(ds, 2, **options)
        expected.set_epoch(epoch)
        for ours, theirs in zip(expected, loader, strict=True):
            assert ours["key"] == theirs["key"]
            assert torch.equal(ours["image"], theirs["image"])
    batches.set_epoch(0)
    smaller = BucketBatches(ds, 3, shuffle=False, drop_last=False)
    assert sorted(n for batch in smaller for n in batch) == [*range(len(SIZES))]


def test_batches_arrive_normalized_and_cut(ds: Any) -> None:
    normalize = Normalize.for_dataset(ds)
    plain = [*Loader(ds, 3, seed=5)]
    for batch, made in zip(plain, Loader(ds, 3, seed=5, normalize=normalize), strict=True):
        assert torch.equal(made["image"], normalize(batch["image"]))
    flipped = [*Loader(ds, 3, seed=5, augment=Augment())]
    turned = 0
    for batch, made in zip(plain, flipped, strict=True):
        assert "transform" not in made
        for one, other in zip(batch["image"], made["image"], strict=True):
            turned += torch.equal(one.flip(2), other)
            assert torch.equal(one.flip(2), other) or torch.equal(one, other)
    assert 0 < turned < sum(len(batch["key"]) for batch in plain)
    cut = Loader(ds, 3, augment=Augment(20, scale=(0.3, 1.0)), normalize=normalize)
    assert {batch["image"].shape for batch in cut} == {(3, 3, 20, 20)}
    with pytest.raises(SelectionError, match="24"):
        Loader(ds, 3, augment=Augment(28, flip=0))


def test_masks_are_dense_and_boxes_are_of_each_picture(photos: Path, tmp_path: Path) -> None:
    beside = {"masks": photos.parent / "masks", "boxes": photos.parent / "boxes.json"}
    out = prepare(photos, tmp_path / "out", **beside)
    for padded in (False, True):
        for batch in Loader(open_dataset(out, size=32, padded=padded), 3, drop_last=False):
            found = batch["image"]
            assert batch["mask"].shape == (len(found), *found.shape[2:])
            counts = [number % 3 for number in numbers(batch)]
            if padded:
                assert batch["boxes_valid"].sum(1).tolist() == counts
                for name in ("image", "mask"):
                    assert batch[f"{name}_valid"].shape == batch["mask"].shape
                    assert batch[f"{name}_valid"].all()
            else:
                assert [len(boxes) for boxes in batch["boxes"]] == counts


@pytest.mark.parametrize("store", ["raw", "jpeg"])
def test_padded_pictures_of_several_buckets_are_one_tensor(
    store: Any, photos: Path, tmp_path: Path
) -> None:
    out = prepare(photos, tmp_path / "out", masks=photos.parent / "masks", store=store)
    ds, padded = open_dataset(out, size=32), open_dataset(out, size=32, padded=True)
    assert padded.buckets == ds.buckets
    order = [*range(0, len(SIZES), 3), 0]
    batch = padded.__getitems__(order)
    shapes = [shape_of(number) for number in numbers(batch)]
    assert len({*shapes}) > 2
    wide, tall = (max(sides) for sides in zip(*shapes, strict=True))
    assert batch["image"].shape == (len(order), 3, tall, wide)
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    for place, (width, height) in enumerate(shapes):
        one = ds[order[place]]
        for name, fill in (("image", 0), ("mask", 255)):
            found, valid = batch[name][place], batch[f"{name}_valid"][place]
            assert torch.equal(found[..., :height, :width], one[name])
            assert valid[:height, :width].all()
            assert valid.sum() == height * width
            assert (found[..., ~valid] == fill).all()
    assert padded[7]["image_valid"].shape == padded[7]["image"].shape[1:]
    plain = DataLoader(padded, batch_size=7, shuffle=True, num_workers=0)
    assert sorted(n for batch in plain for n in numbers(batch)) == [*range(len(SIZES))]


def test_padded_pictures_come_from_a_loader_as_others_do(ds: Any) -> None:
    padded = open_dataset(ds.path, size=32, padded=True)
    normalize = Normalize.for_dataset(ds)
    for options in ({}, {"normalize": normalize}, {"augment": Augment(24, scale=(0.3, 1.0))}):
        both = Loader(ds, 3, seed=5, **options), Loader(padded, 3, seed=5, **options)
        for one, other in zip(*both, strict=True):
            assert torch.equal(one["image"], other["image"])
            if "augment" in options:
                assert "image_valid" not in other  # of what was cut out, all counts
                continue
            assert other["image_valid"].shape == (3, *one["image"].shape[2:])
            assert other["image_valid"].all()


def test_what_cannot_be_is_refused_by_name(ds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SelectionError, match=r"buckets .* in one batch: Loader.*padded=True"):
        ds.__getitems__([*range(len(ds))])
    with pytest.raises(SelectionError, match='shuffle="block": each bucket'):
        Loader(ds, 2, shuffle="block")
    with pytest.raises(SelectionError, match="draws by weight are of all buckets"):
        Weighted(ds, "balanced")
    with pytest.raises(SelectionError, match="pictures of different sizes"):
        Mix({ds: 1.0})
    with pytest.raises(SelectionError, match=r"'image' differs in length"):
        Loader(ds, 2, residency="device")
    most = max(ds.buckets.values())
    with pytest.raises(SelectionError, match=rf"40 train samples, at most {most} in a bucket"):
        Loader(ds, most + 1)
    with pytest.raises(SelectionError, match=rf"at most {most} in a bucket, so no batch is full"):
        BucketBatches(ds, most + 1)
    with pytest.raises(SelectionError, match=r'Loader.*last="pad"'):
        BucketBatches(ds, 2, last="pad")  # type: ignore[arg-type]
    assert not capsys.readouterr().err
    loader = Loader(ds, most)
    lost = sum(count for count in ds.buckets.values() if count < most)
    assert len([*loader]) == list(ds.buckets.values()).count(most)
    assert lost
    assert (
        f"in batches of {most} samples, and so left out in every epoch" in capsys.readouterr().err
    )


def test_batches_of_buckets_are_of_datasets_that_have_them(dataset_path: Path) -> None:
    with pytest.raises(SelectionError, match="a ShardDataset has no buckets"):
        BucketBatches(open_dataset(dataset_path, size=32), 2)


def test_samples_in_no_bucket_and_of_other_lengths_are_named(photos: Path, tmp_path: Path) -> None:
    out = prepare(photos, tmp_path / "out")
    path = out / "train/00000.transform_32.npy"
    whole = path.read_bytes()
    rows = np.frombuffer(whole[128:], "<u4").reshape(-1, 10).copy()
    width, height = (int(side) for side in rows[1, 8:])
    for changed, message in (
        ([7, 9], "sample 1: size 7 x 9 is that of no bucket"),
        (
            [*next(shape for shape in SHAPES if shape[0] * shape[1] != width * height)],
            f"{width * height} pixels",
        ),
    ):
        rows[1, 8:] = changed
        path.write_bytes(whole[:128] + rows.tobytes())
        with pytest.raises(FormatError, match=message):
            open_dataset(out, size=32)[1]


@pytest.mark.parametrize("buckets", [None, [], {"32": []}, {"32": [[1]]}, {"32": [[8, 8], [8, 8]]}])
def test_recorded_shapes_that_cannot_be_are_named(buckets: Any) -> None:
    with pytest.raises(FormatError, match=r"out: recipe\.buckets"):
        recorded_shapes({"fit": "bucket", "buckets": buckets}, "32", "out")


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))]
)
@pytest.mark.parametrize("options", [{"augment": Augment(8)}, {"normalize": True}])
@pytest.mark.parametrize("store", ["raw", "jpeg"])
def test_a_loader_that_finishes_buckets_can_be_copied(
    photos: Path, tmp_path: Path, store: Any, options: dict[str, Any], copied: Any
) -> None:
    ds = open_dataset(prepare(photos, tmp_path / "out", store=store), size=32)
    chosen = {name: Normalize.for_dataset(ds) if v is True else v for name, v in options.items()}
    loader = Loader(ds, 2, seed=5, **chosen)
    for one, other in zip(copied(loader), loader, strict=True):
        assert torch.equal(one["image"], other["image"])


def test_buckets_that_no_encoded_picture_can_fill_are_refused(photos: Path, tmp_path: Path) -> None:
    out = prepare(photos, tmp_path / "out", store="jpeg")
    manifest = json.loads((out / "manifest.json").read_bytes())
    manifest["recipe"]["buckets"]["32"].insert(0, [1 << 17, 8])
    del manifest["crc32c"]
    manifest["crc32c"] = crc32c_digits(to_json(manifest))
    (out / "manifest.json").write_bytes(to_json(manifest))
    with pytest.raises(FormatError, match=r"recipe\.buckets: a side of 131072, encoded pictures"):
        open_dataset(out, size=32)
    assert len(open_dataset(out, size=16)) == len(SIZES)
