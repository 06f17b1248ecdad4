"""The shapes of aspect-ratio buckets, as the recipe in a manifest lists them."""

from collections.abc import Mapping
from typing import Any

from loaders.format.fields import MAX_COUNT
from loaders.format.strict import Place

Shape = tuple[int, int]
"""Width and height in pixels, as sizes are named."""


def recorded_shapes(recipe: Mapping[str, Any], size: str, where: str) -> tuple[Shape, ...] | None:
    """Return the shapes of the buckets of one stored size; see `recorded_buckets`.

    Raises:
        FormatError: As that, or there are none of that size.
    """
    found = recorded_buckets(recipe, where)
    if found is None:
        return None
    Place(f"{where}: recipe.buckets").expect(size in found, sorted(found), f"{size} among them")
    return found[size]


def recorded_buckets(recipe: Mapping[str, Any], where: str) -> dict[str, tuple[Shape, ...]] | None:
    """Return the shapes of the buckets of each stored size; None where there are no buckets.

    Args:
        recipe: As the manifest has it.
        where: Names the dataset in errors.

    Returns:
        Name of a size -> its shapes.

    Raises:
        FormatError: They are no lists of different pairs.
    """
    if recipe.get("fit") != "bucket":
        return None
    place = Place(f"{where}: recipe.buckets")
    listed = place.partial_mapping(recipe.get("buckets"), None)
    return {size: _shapes(place.at(size), shapes) for size, shapes in listed.items()}


def _shapes(at: Place, listed: Any) -> tuple[Shape, ...]:
    pairs = [at.integers(pair, low=1, high=MAX_COUNT) for pair in at.sequence(listed)]
    sound = bool(pairs) and all(len(pair) == 2 for pair in pairs) and len({*pairs}) == len(pairs)
    at.expect(sound and len(pairs) <= 1 << 16, listed, "different pairs of width and height")
    return tuple((width, height) for width, height in pairs)
