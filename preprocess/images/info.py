"""What `prep info` says of pictures beside what it says of every dataset: their buckets."""

from typing import Any

from loaders.format.spec import Manifest
from preprocess.images.buckets import BUCKET


def describe_buckets(manifest: Manifest) -> dict[str, Any] | None:
    """Return how many pictures each bucket of each size has, as JSON values; None without.

    Args:
        manifest: Of any dataset.

    Returns:
        Split -> size -> list of width, height and count.
    """
    if manifest.kind != "images" or manifest.recipe.get("fit") != BUCKET:
        return None
    found: dict[str, Any] = {}
    for name, split in manifest.splits.items():
        found[name] = {}
        for size, shapes in manifest.recipe["buckets"].items():
            counts = split.tallies.get(f"buckets_{size}", ())
            counts += (0,) * (len(shapes) - len(counts))  # the last ones may have none
            found[name][size] = [[*s, n] for s, n in zip(shapes, counts, strict=True)]
    return found


def buckets_text(buckets: dict[str, Any]) -> str:
    """Return it for people."""
    lines = []
    for split, sizes in buckets.items():
        for size, rows in sizes.items():
            shown = ", ".join(f"{width}x{height} {count:,}" for width, height, count in rows)
            lines.append(f"{split}: buckets of {size}: {shown}")
    return "\n".join(lines)
