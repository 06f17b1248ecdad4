"""`prep demo`: photos -> shards -> batches -> a trained model, in under a minute."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from preprocess.check import check_dataset
from preprocess.demo.photos import write_photos
from preprocess.errors import OutputError
from preprocess.images.options import ImageOptions
from preprocess.images.prepare import images_to_shards
from preprocess.plan import RunOptions

if TYPE_CHECKING:
    from torch import nn

    from loaders.dataset import ShardDataset
    from loaders.normalize import NormalizedModel

_MARK: Final = "made-by-prep-demo.txt"
_PHOTOS_PER_CLASS: Final = 50
_SIZES: Final = ((64, 64), (128, 128))
_EPOCHS: Final = 12
_BATCH: Final = 16
_DAMAGED: Final = "train/forest/forest_damaged.jpg"


def run_demo(out: Path, say: Callable[[str], None]) -> None:
    """Go the whole way once, on photos made for it.

    Args:
        out: Folder for the photos and the dataset; an earlier demo in it is replaced.
        say: Told what happens, line by line.

    Raises:
        OutputError: The folder holds something else.
    """
    photos, dataset = out / "photos", out / "shards"
    _take_folder(out)
    say(
        f"1. photos: painting {3 * _PHOTOS_PER_CLASS} in three classes, and half a file beside them"
    )
    write_photos(photos, count_per_class=_PHOTOS_PER_CLASS, seed=0)
    _damage_one(photos)

    sizes = " ".join(str(width) for width, _ in _SIZES)
    say(f"\n2. $ prep images {photos} {dataset} --sizes {sizes} --max-skipped 1")
    report = images_to_shards(
        photos, dataset, ImageOptions(sizes=_SIZES), RunOptions(max_skipped=1)
    )
    say(report.to_text())

    say(f"\n3. $ prep check {dataset} --full")
    checked = check_dataset(dataset, full=True)
    if checked.problems:
        raise OutputError(f"{dataset}: the check found {checked.problems[0]}")
    say(f"{checked.files} files, sizes and checksums: all good")

    say("\n4. training a small model on the CPU: 64 pixels first, then 128, from the same shards")
    _train(dataset, say)
    say(
        f"""
Yours now:
  prep images PHOTOS OUT --sizes 224 --dry-run    what would be written, and where it fits
  prep images PHOTOS OUT --sizes 224              class folders become labels
  prep info {dataset}

  from loaders import Loader, Normalize, open_dataset
  ds = open_dataset("{dataset}", size=128)
  normalize = Normalize.for_dataset(ds)
  for batch in Loader(ds, batch_size=64):         # device="cuda" copies one batch ahead
      images = normalize(batch["image"])          # [B, C, H, W] float32"""
    )


def _take_folder(out: Path) -> None:
    """Make the folder, or empty the one that an earlier demo made."""
    if out.exists() and not (out / _MARK).exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out}: not empty, and no earlier demo made it; give another folder")
    for name in ("photos", "shards"):
        shutil.rmtree(out / name, ignore_errors=True)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARK).write_text("Photos and shards of `prep demo`; safe to delete.\n")
    except OSError as error:
        raise OutputError(f"{out}: cannot write: {error.strerror}") from error


def _damage_one(photos: Path) -> None:
    """Leave half a JPEG among the photos, as an interrupted download would."""
    whole = (photos / "train" / "forest" / "forest_002.jpg").read_bytes()
    (photos / _DAMAGED).write_bytes(whole[: len(whole) // 2])


def _train(dataset: Path, say: Callable[[str], None]) -> None:
    import torch
    from torch import nn

    from loaders import Loader, Normalize, NormalizedModel, open_dataset

    torch.manual_seed(0)
    say(f'open_dataset("{dataset}", size=64): {open_dataset(dataset, size=64)}')
    model: NormalizedModel | None = None
    for width, height in _SIZES:
        train = open_dataset(dataset, size=(width, height))
        if model is None:
            normalize = Normalize.for_dataset(train)
            model = NormalizedModel(
                normalize, _small_network(len(train.classes)), nn.functional.cross_entropy
            )
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        losses = []
        for _ in range(_EPOCHS if width == _SIZES[0][0] else _EPOCHS // 4):
            for batch in Loader(train, batch_size=_BATCH):
                optimizer.zero_grad()
                loss = model(batch["image"], batch["label"])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        right, total = _count_right(
            model, open_dataset(dataset, split="validation", size=(width, height))
        )
        first, last = (sum(part) / len(part) for part in (losses[:5], losses[-5:]))
        say(
            f"{width} pixels: {len(losses)} steps, loss {first:.2f} -> {last:.2f}, "
            f"{right} of {total} validation photos right"
        )


def _count_right(model: "NormalizedModel", dataset: "ShardDataset") -> tuple[int, int]:
    import torch

    from loaders import Loader

    model.eval()
    right = 0
    with torch.no_grad():
        for batch in Loader(dataset, batch_size=_BATCH, shuffle=False, drop_last=False):
            right += int((model(batch["image"]).argmax(1) == batch["label"]).sum())
    model.train()
    return right, len(dataset)


def _small_network(classes: int) -> "nn.Module":
    from torch import nn

    layers: list[nn.Module] = []
    for inside, outside in ((3, 16), (16, 32), (32, 64)):
        layers += [
            nn.Conv2d(inside, outside, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
