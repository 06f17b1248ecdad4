"""What each way of storing pictures would take, and how fast it is read: measured on a few."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.codecs import decode_sample, encode_sample
from loaders.format.encoding import Encoding
from loaders.format.fields import FieldSpec
from preprocess.errors import SampleError
from preprocess.images.options import ImageOptions
from preprocess.images.recipe import ImageRecipe
from preprocess.images.storage import QUALITY
from preprocess.item_contents import ItemFiles
from preprocess.plan import Plan
from preprocess.recipe import Ragged, Recipe, Rows
from preprocess.spelling import OptionError

PHOTOS: Final = 16
"""Photos that are measured, evenly spaced over all."""

_SECONDS: Final = 0.1
"""Read for so long at least, again and again; the fastest time counts."""

Pictures = Mapping[str, Sequence[NDArray[Any]]]
"""Field -> the same pictures or masks of a few samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One way to store pictures and masks.

    Attributes:
        name: "raw", "jpeg" with its quality, "zstd" or "blosc-lz4".
        options: Of the command, which ask for it.
        nbytes: Bytes of all photos at all sizes, as far as those that were measured tell.
        per_second: Field -> samples that one core copies or decodes in a second, out of memory.
        refused: Why the other options do not allow it; else empty.
    """

    name: str
    options: str
    nbytes: int
    per_second: Mapping[str, float]
    refused: str

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        rates = {name: round(rate, 1) for name, rate in self.per_second.items()}
        found = {"name": self.name, "options": self.options, "refused": self.refused}
        return {**found, "nbytes": self.nbytes, "samples_per_second_and_core": rates}


def compare_storage(plan: Plan) -> list[Measured]:
    """Measure what raw pixels, JPEGs and compressed pixels of a plan's photos take.

    Returns:
        One each; none where none of the photos that were tried can be read.
    """
    chosen = _pictured(plan.recipe).chosen
    quality = chosen.quality or QUALITY
    raw = replace(chosen, store="raw", quality=None, compress=None)
    pictures = _few_pictures(plan, raw)
    if not pictures:
        return []
    ways: list[tuple[str, str, dict[str, Any]]] = [
        ("raw", "", {}),
        (f"jpeg {quality}", "--store jpeg", {"store": "jpeg", "quality": quality}),
        ("zstd", "--format zarr --compress zstd", {"compress": "zstd"}),
        ("blosc-lz4", "--format zarr --compress blosc-lz4", {"compress": "blosc-lz4"}),
    ]
    found = []
    count = plan.listing.count - len(plan.too_large())
    for name, words, change in ways:
        nbytes, rates, refused = 0, {}, ""
        try:
            recipe = replace(_pictured(plan.recipe), chosen=replace(raw, **change))
        except OptionError as error:
            refused = error.as_typed
        else:
            for field in _stored(recipe):
                each, rates[field.name] = _measure(pictures[field.name], field.encoding)
                nbytes += each
        total = nbytes * count
        found.append(
            Measured(name=name, options=words, nbytes=total, per_second=rates, refused=refused)
        )
    return found


def _pictured(recipe: Recipe) -> ImageRecipe:
    if not isinstance(recipe, ImageRecipe):
        raise TypeError(f"a plan of {recipe.kind}, not of images")
    return recipe


def _stored(recipe: ImageRecipe) -> list[FieldSpec]:
    return [field for field in recipe.fields() if field.role in {"image", "pixel_labels"}]


def _few_pictures(plan: Plan, raw: ImageOptions) -> Pictures:
    """Return the pictures and masks of some photos, as they would be stored."""
    found: dict[str, list[NDArray[Any]]] = {}
    for name, items in plan.listing.limited(PHOTOS).splits.items():
        recipe = replace(_pictured(plan.recipes[name]), chosen=raw)
        with recipe.opened() as maker:
            for rows in maker.samples(ItemFiles(plan.listing.root), items):
                if not isinstance(rows, SampleError):
                    for field in _stored(recipe):
                        found.setdefault(field.name, []).append(_picture(field, rows))
    return found


def _picture(field: FieldSpec, rows: Rows) -> NDArray[Any]:
    """Return the picture or mask of a sample: [H, W, C] or [H, W]."""
    array = rows.arrays[field.name]
    if not isinstance(array, Ragged):
        return np.ascontiguousarray(array[0])
    transform: Any = rows.arrays[f"transform_{field.name.split('_')[1]}"]
    right, bottom = transform[0][-2:]
    return array.values.reshape(int(bottom), int(right), *field.shape)


def _measure(pictures: Sequence[NDArray[Any]], encoding: Encoding | None) -> tuple[int, float]:
    """Return the bytes of one of some pictures, and how many are read in a second."""
    outs = [np.empty_like(picture) for picture in pictures]
    stored: Sequence[NDArray[Any]] = pictures
    if encoding is not None:
        stored = [np.frombuffer(encode_sample(encoding, p), np.uint8) for p in pictures]

    def read() -> None:
        for data, out in zip(stored, outs, strict=True):
            if encoding is None:
                np.copyto(out, data)
            else:
                decode_sample(encoding, data, out)

    nbytes = sum(data.nbytes for data in stored)
    return nbytes // len(stored), len(stored) / _fastest(read)


def _fastest(work: Callable[[], None]) -> float:
    """Return the processor's seconds of the fastest of several calls."""
    best, spent = float("inf"), 0.0
    while spent < _SECONDS:
        start = time.thread_time()
        work()
        taken = max(time.thread_time() - start, 1e-9)
        best, spent = min(best, taken), spent + taken
    return best


def storage_lines(found: Sequence[Measured], human: Callable[[int], str]) -> Iterator[str]:
    """Yield a small table for people.

    Args:
        found: What was compared.
        human: Writes numbers of bytes.
    """
    if not found:
        yield "storage: none of the photos that were tried can be read"
        return
    names = [*found[0].per_second]
    yield f"storage, measured on up to {PHOTOS} of the photos; samples read a second and core:"
    titles = "".join(f" {name:>14}" for name in names)
    yield f"  {'':<10} {'bytes':>9}{titles}"
    for way in found:
        if way.refused:
            yield f"  {way.name:<10} {'':>9}  not with these options: {way.refused}"
            continue
        rates = "".join(f" {way.per_second[name]:>14,.0f}" for name in names)
        yield f"  {way.name:<10} {human(way.nbytes):>9}{rates}  {way.options}".rstrip()
