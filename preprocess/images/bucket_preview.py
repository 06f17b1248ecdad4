"""Which buckets the photos of a plan will go to, as far as their headers tell."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from preprocess.images.buckets import BUCKET
from preprocess.images.decoder_settings import decoder_settings
from preprocess.images.options import ImageOptions, size_name
from preprocess.images.recipe import ImageRecipe
from preprocess.images.resize import fit_geometry
from preprocess.items import Item
from preprocess.plan import Plan

LOOKED_AT: Final = 20_000
"""Photos of a split whose headers are read, evenly spaced over all of it."""

_WIDTH: Final = 256
_HEIGHT: Final = 257
_ORIENTATION: Final = 274
"""Tags of TIFF and Exif."""

_TURNED: Final = frozenset({5, 6, 7, 8})
"""Orientations of which width and height change places."""


@dataclass(slots=True)
class BucketPhotos:
    """The photos of one bucket.

    Attributes:
        shape: Width and height of the bucket.
        photos: How many go there.
        cropped: Shares of them, summed, that are cut off.
    """

    shape: tuple[int, int]
    photos: int = 0
    cropped: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        share = self.cropped / self.photos if self.photos else 0.0
        width, height = self.shape
        return {"width": width, "height": height, "photos": self.photos, "cropped": round(share, 4)}


@dataclass(slots=True)
class BucketPreview:
    """The buckets of one split at one size.

    Attributes:
        split: Name of the split.
        size: Name of the size.
        looked_at: Photos whose headers were looked at.
        photos: Photos of the split.
        unknown: Photos whose headers tell no size, of those that were looked at.
        too_small: Photos that would have to be enlarged, and are refused.
        buckets: From the tallest to the widest.
    """

    split: str
    size: str
    looked_at: int
    photos: int
    unknown: int = 0
    too_small: int = 0
    buckets: list[BucketPhotos] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        counts = {"looked_at": self.looked_at, "photos": self.photos, "unknown": self.unknown}
        buckets = [bucket.to_json() for bucket in self.buckets]
        return {**counts, "too_small": self.too_small, "buckets": buckets}


def preview_buckets(plan: Plan) -> list[BucketPreview]:
    """Count the photos of each bucket by their headers; nothing is decoded.

    Args:
        plan: Of images.

    Returns:
        One for each split and size that is to be written; none without buckets.
    """
    found: list[BucketPreview] = []
    recipe = plan.recipe
    if not isinstance(recipe, ImageRecipe) or recipe.chosen.fit != BUCKET:
        return found
    with decoder_settings():
        for split, shards in plan.new_shards().items():
            listed = (item for shard in shards for item in shard)
            items = [item for item in listed if recipe.too_large(item) is None]
            step = max(1, -(-len(items) // LOOKED_AT))
            sizes = [_upright_size(plan.listing.root, item) for item in items[::step]]
            found += [
                _preview(split, len(items), size, sizes, recipe.chosen)
                for size in recipe.chosen.sizes
            ]
    return found


def _preview(
    split: str,
    photos: int,
    size: tuple[int, int],
    sizes: Sequence[tuple[int, int] | None],
    chosen: ImageOptions,
) -> BucketPreview:
    made = BucketPreview(split, size_name(size), len(sizes), photos)
    buckets = {shape: BucketPhotos(shape) for shape in chosen.buckets(size)}
    made.buckets += buckets.values()
    place = chosen.sizes.index(size)
    for upright in sizes:
        if upright is None or upright[0] * upright[1] > chosen.max_pixels:
            made.unknown += 1
            continue
        targets, fit = chosen.targets(*upright)
        shape = targets[place]
        try:
            placement = fit_geometry(*upright, shape, fit, upscale=not chosen.no_upscale)
        except ValueError:
            made.too_small += 1
            continue
        left, top, right, bottom = placement.source
        buckets[shape].photos += 1
        buckets[shape].cropped += 1 - (right - left) * (bottom - top) / (upright[0] * upright[1])
    return made


def _upright_size(root: Path, item: Item) -> tuple[int, int] | None:
    """Return width and height of a photo, upright, by its header; None if that cannot be read."""
    from PIL import Image

    try:
        with Image.open(root / item.key) as image:
            tags = getattr(image, "tag_v2", None)  # of a TIFF; Pillow's size of one is upright
            width, height = image.size if tags is None else (tags[_WIDTH], tags[_HEIGHT])
            turned = image.getexif().get(_ORIENTATION) in _TURNED
    except Exception:  # noqa: BLE001 - of a bad item; the run itself names what is wrong with it
        return None
    return (height, width) if turned else (width, height)


def preview_lines(previews: Sequence[BucketPreview]) -> Iterator[str]:
    """Yield it for people.

    Args:
        previews: As `preview_buckets` gives them.
    """
    for one in previews:
        part = f"{one.looked_at:,} of " if one.looked_at < one.photos else ""
        yield f"{one.split}: buckets of {one.size}, by the headers of {part}{one.photos:,} photos:"
        known = sum(bucket.photos for bucket in one.buckets) or 1
        for bucket in one.buckets:
            shape = "x".join(map(str, bucket.shape))
            cut = f", {bucket.cropped / bucket.photos:.1%} of each cut off" if bucket.photos else ""
            yield f"  {shape:<10} {bucket.photos:>9,} {bucket.photos / known:>7.1%}{cut}"
        if one.unknown:
            yield f"  {'no bucket':<10} {one.unknown:>9,} whose headers tell no size that is taken"
        if one.too_small:
            yield f"  {'no bucket':<10} {one.too_small:>9,} too small, with --no-upscale"
