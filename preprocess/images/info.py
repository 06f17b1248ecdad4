"""What `prep info` says of pictures beside what it says of every dataset: their buckets."""

from pathlib import Path
from typing import Any

from loaders.errors import FormatError
from loaders.format.recorded_buckets import recorded_buckets
from loaders.format.spec import Manifest


def describe_buckets(manifest: Manifest, root: Path) -> dict[str, Any] | None:
    """Return how many pictures each bucket of each size has, as JSON values; None without.

    Args:
        manifest: Of any dataset.
        root: Its folder.

    Returns:
        Split -> size -> list of width, height and count.

    Raises:
        FormatError: The manifest's buckets are none.
    """
    if manifest.kind != "images":
        return None
    buckets = recorded_buckets(manifest.recipe, str(root))
    if buckets is None:
        return None
    found: dict[str, Any] = {}
    for name, split in manifest.splits.items():
        found[name] = {}
        for size, shapes in buckets.items():
            counts = split.tallies.get(f"buckets_{size}", ())
            if len(counts) > len(shapes):
                raise FormatError(
                    f"{root}: pictures in {len(counts)} buckets of {size}, it has {len(shapes)}"
                )
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
