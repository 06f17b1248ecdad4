"""Semantic segmentation: photos and masks travel as small integers, all else is in the model.

    python pipelines/images_segmentation.py PHOTOS MASKS OUT --classes 21

PHOTOS holds train/... and validation/...; MASKS the same paths as PNG of class indices, 255: none.
"""

import argparse
from functools import partial
from pathlib import Path

import torch
from torch import nn

from loaders import Loader, Normalize, NormalizedModel, open_dataset
from preprocess import ImageOptions, RunOptions, images_to_shards

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
IGNORED = 255


class Network(nn.Module):
    """A small encoder and decoder: [B, 3, H, W] -> [B, classes, H, W]."""

    def __init__(self, classes: int, width: int = 32) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width),
            nn.ReLU(), nn.Conv2d(2 * width, classes, 3, padding=1),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the scores of every class for every pixel."""
        return nn.functional.interpolate(self.down(images), images.shape[-2:], mode="bilinear")


@torch.no_grad()
def accuracy(model: nn.Module, loader: Loader) -> float:
    """Return the share of pixels that are classified right, of those that count."""
    model.eval()
    right, counted = 0, 0
    for batch in loader:
        valid = batch["mask"] != IGNORED
        right += ((model(batch["image"]).argmax(1) == batch["mask"]) & valid).sum().item()
        counted += valid.sum().item()
    return right / counted


def main() -> None:
    """Prepare, train, evaluate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos")
    parser.add_argument("masks", type=Path)
    parser.add_argument("out")
    for name, value in (("classes", 21), ("size", 256), ("epochs", 3), ("batch-size", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()

    options = ImageOptions(
        sizes=((args.size, args.size),), fit="pad", masks=args.masks, mask_classes=args.classes
    )
    print(images_to_shards(args.photos, args.out, options, RunOptions(max_skipped=10)).to_text())
    training = open_dataset(args.out)
    loss = partial(nn.functional.cross_entropy, ignore_index=IGNORED)  # masks become int64 there
    model = NormalizedModel(Normalize.for_dataset(training), Network(args.classes), loss).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for batch in Loader(training, args.batch_size, device=DEVICE, seed=epoch):
            error = model(batch["image"], batch["mask"])  # uint8, both
            optimizer.zero_grad(set_to_none=True)
            error.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {error.item():.3f}")
    held_out = Loader(open_dataset(args.out, split="validation"), 8, shuffle=False, drop_last=False)
    print(f"accuracy {accuracy(model.cpu(), held_out):.3f}")


if __name__ == "__main__":
    main()
