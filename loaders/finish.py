"""What becomes of the images of a batch on their device: augmented, then normalized."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.augment import Augment
from loaders.buckets import BucketPictures
from loaders.device_rows import LEVELS
from loaders.errors import ImageTypeError, NormalizeError, SelectionError
from loaders.normalize import Normalize, normalize_innermost
from loaders.views import Gatherable, Part

IMAGE: Final = "image"

BOXES: Final = "boxes to cut"
"""Travels beside the rows where images are augmented; no entry of a batch."""

_STORED: Final = {str(dtype).removeprefix("torch."): dtype for dtype in LEVELS}


_PAIRED: Final = frozenset({"mask", "boxes"})
"""Parts that say something of single pixels of an image."""

_OF_STORED: Final = frozenset({"transform", f"{IMAGE}_valid"})
"""Entries that say where what is stored lies in the photo, and which pixels of it count; of what
was cut of that it is not so."""


@dataclass(frozen=True, slots=True, eq=False)
class Finish:
    """Works on the rows of a batch where they arrive, before the dataset shows them.

    Attributes:
        augment: Cuts, flips and scales the images.
        normalize: Makes them floats, after that.
        seed: Of the loader; fixes the random cuts, with the epoch.
    """

    augment: Augment | None
    normalize: Normalize | None
    seed: int

    @classmethod
    def on(
        cls,
        dataset: Gatherable,
        device: torch.device,
        augment: Augment | None,
        normalize: Normalize | None,
        seed: int,
    ) -> Self:
        """Check the options against a dataset, and bring the statistics to the device.

        Raises:
            SelectionError: The dataset has no images.
            ImageTypeError: They are neither uint8 nor uint16, or differ in size.
            NormalizeError: They have other channels than the statistics.
        """
        if augment is None and normalize is None:
            return cls(None, None, seed)
        image = _image_part(dataset, "augment" if augment else "normalize")
        shape, _ = image.layout(np.empty(0, np.int64))
        channels = shape[-1]
        if augment is not None:
            _refuse_paired(dataset)
            buckets = image.buckets.shapes if isinstance(image, BucketPictures) else ()
            for wide, high in buckets or [(shape[2], shape[1])]:
                augment.boxes.check(high, wide)
        if normalize is not None and channels != len(normalize.scale):
            raise NormalizeError(
                f"{dataset.path}: images have {channels} channels, normalize has statistics of "
                f"{len(normalize.scale)}: take Normalize.for_dataset(dataset)"
            )
        # A module of its own: the caller's may be cast, moved and trained with its model.
        moved = None if normalize is None else copy.deepcopy(normalize).to(device)
        if device.type == "cuda":  # they are read on a stream that knows nothing of this one
            torch.cuda.synchronize(device)
        return cls(augment, moved, seed)

    @property
    def at_once(self) -> Mapping[str, Normalize]:
        """Parts that can be normalized while they are gathered: nothing comes between."""
        if self.augment is not None or self.normalize is None:
            return {}
        return {IMAGE: self.normalize}

    def draw(
        self,
        parts: Iterable[Part],
        indices: NDArray[np.int64],
        positions: NDArray[np.int64],
        epoch: int,
    ) -> dict[str, NDArray[np.int32]]:
        """Return what has to be known of a batch: the boxes of its samples, if any.

        Args:
            parts: Those of the dataset, of which one says how large the images of a batch are.
            indices: [B] the samples.
            positions: [B] their places in the epoch, by which they are cut. Not which samples they
                are: one that is drawn again, as by `Weighted`, would be shown as it was before.
            epoch: Its number.
        """
        if self.augment is None:
            return {}
        image = next(part for part in parts if part.name == IMAGE)
        (_, high, wide, _), _ = image.layout(indices)
        return {BOXES: self.augment.draw(positions, high, wide, seed=self.seed, epoch=epoch)}

    def rows(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Augment and normalize the images among the rows of a batch.

        Args:
            rows: Part -> rows as stored, images [B, H, W, C]; those that are floats are done. What
                `draw` gave for these samples stands among them.
        """
        found = dict(rows)
        boxes = found.pop(BOXES, None)
        if self.augment is not None and boxes is not None:
            if self.normalize is not None:
                found[IMAGE] = self.augment.cut_normalized(found[IMAGE], boxes, self.normalize)
            else:
                found[IMAGE] = self.augment.cut(found[IMAGE], boxes)
        elif self.normalize is not None and not found[IMAGE].is_floating_point():
            found[IMAGE] = normalize_innermost(self.normalize, found[IMAGE])
        return found

    def entries(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of a batch without those that are not so any more."""
        gone = frozenset() if self.augment is None else _OF_STORED
        return {name: entry for name, entry in batch.items() if name not in gone}


def _refuse_paired(dataset: Gatherable) -> None:
    """Refuse to cut images whose masks and boxes would stay as they are."""
    paired = (part.shown_as for part in dataset.views if part.name in _PAIRED)
    found = [*dict.fromkeys(paired)]
    if found:
        raise SelectionError(
            f"{dataset.path}: augment cuts {IMAGE!r} alone, and samples have {', '.join(found)} "
            "that belong to its pixels: cut them together in the training loop"
        )


def _image_part(dataset: Gatherable, option: str) -> Part:
    """Return what says how large the images of a dataset are, if they are stored integers."""
    for part in dataset.views:
        if part.name != IMAGE:
            continue
        if not (part.fixed or isinstance(part, BucketPictures)):
            raise ImageTypeError(
                f"{dataset.path}: {option}: the loader takes pictures of one size, or in buckets, "
                f"and these differ: leave {option} out and work on them in the training loop "
                "(NormalizedModel takes padded ones as they are)"
            )
        shape, dtype = part.layout(np.empty(0, np.int64))
        if dtype.name not in _STORED or len(shape) != 4:
            raise ImageTypeError(
                f"{dataset.path}: {option}: field {IMAGE!r} is {dtype.name} {list(shape[1:])}, "
                "expected images, uint8 or uint16 [H, W, C]"
            )
        return part
    raise SelectionError(
        f"{dataset.path}: {option}: samples have no {IMAGE!r}, only "
        f"{', '.join(repr(part.shown_as) for part in dataset.views)}: leave {option} out"
    )
