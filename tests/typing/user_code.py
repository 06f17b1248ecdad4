"""What users write, checked by mypy in strict mode: public names and their types."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from loaders import Loader, Normalize, NormalizedModel, ShardDataset, ShardsError, open_dataset
from preprocess import ImageOptions, Report, RunOptions, check_dataset, images_to_shards


def prepare(photos: Path, out: Path) -> Report:
    options = ImageOptions(sizes=((512, 512), (1024, 1024)), grayscale=True, fit="pad")
    return images_to_shards(photos, out, options, RunOptions(container="zarr", workers=4))


def train(out: str, backbone: nn.Module) -> float:
    ds: ShardDataset = open_dataset(out, split="train", size=512)
    model = NormalizedModel(Normalize.for_dataset(ds), backbone, nn.functional.cross_entropy)
    loss = torch.zeros(())
    for batch in Loader(ds, batch_size=64, shuffle=True, seed=0, drop_last=True, device=None):
        loss = model(batch["image"], batch["label"])
    plain: DataLoader[dict[str, Any]] = DataLoader(ds, batch_size=64)
    classes: tuple[str, ...] = ds.classes
    mean: tuple[float, ...] | None = ds.mean
    print(len(plain), len(classes), mean)
    return float(loss)


def check(out: Path) -> bool:
    try:
        return not check_dataset(out, full=True).problems
    except ShardsError:
        return False
