"""Image classification with progressive resizing: small pictures first, then large ones.

    python pipelines/images_classification.py PHOTOS OUT

PHOTOS holds train/<class>/... and validation/<class>/...; both sizes come from one decode.
"""

import argparse
from itertools import pairwise

import torch
from torch import nn

from loaders import Loader, Normalize, NormalizedModel, open_dataset
from preprocess import ImageOptions, RunOptions, images_to_shards

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def network(classes: int) -> nn.Module:
    """Return a small convolutional network that takes pictures of any size."""
    layers: list[nn.Module] = []
    for inside, outside in pairwise((3, 32, 64, 128)):
        layers += [nn.Conv2d(inside, outside, 3, stride=2, padding=1), nn.BatchNorm2d(outside)]
        layers += [nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))


def train(model: nn.Module, loader: Loader, epochs: int) -> None:
    """Train on one of the stored sizes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        total = 0.0
        for batch in loader:
            loss = model(batch["image"], batch["label"])  # normalized on the device, then the loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")


@torch.no_grad()
def accuracy(model: nn.Module, loader: Loader) -> float:
    """Return the share of pictures that are classified right."""
    model.eval()
    right = sum((model(b["image"]).argmax(1) == b["label"]).sum().item() for b in loader)
    model.train()
    return right / len(loader.dataset)


def main() -> None:
    """Prepare, then train small and large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos")
    parser.add_argument("out")
    parser.add_argument(
        "--sizes", type=int, nargs=2, default=[128, 224], metavar=("SMALL", "LARGE")
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    options = ImageOptions(sizes=tuple((side, side) for side in args.sizes))
    print(images_to_shards(args.photos, args.out, options, RunOptions(max_skipped=10)).to_text())

    first = open_dataset(args.out, size=args.sizes[0])
    backbone = network(len(first.classes))
    model = NormalizedModel(Normalize.for_dataset(first), backbone, nn.functional.cross_entropy)
    model.to(DEVICE, memory_format=torch.channels_last)
    for size in args.sizes:
        training = open_dataset(args.out, size=size)
        held_out = open_dataset(args.out, split="validation", size=size)
        train(model, Loader(training, args.batch_size, device=DEVICE), args.epochs)
        loader = Loader(held_out, 64, shuffle=False, drop_last=False, device=DEVICE)
        print(f"{size} pixels: accuracy {accuracy(model, loader):.2f}")


if __name__ == "__main__":
    main()
