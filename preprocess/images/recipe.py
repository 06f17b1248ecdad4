"""How photos become samples: bytes -> upright pixels -> the sizes that are stored."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.codecs import encode_sample
from loaders.format.fields import FieldSpec
from preprocess.errors import SampleError
from preprocess.images.boxes import fit_boxes
from preprocess.images.buckets import BUCKET
from preprocess.images.decode import decode_pictures
from preprocess.images.decoder_settings import decoder_settings
from preprocess.images.expected import expected_nbytes
from preprocess.images.fields import narrowest, sample_fields, value_fields
from preprocess.images.finish import Picture
from preprocess.images.masks import check_mask, fit_mask, read_mask, too_large_mask
from preprocess.images.options import BACKGROUNDS, ImageOptions, size_name
from preprocess.images.policy import MAX_ITEM_NBYTES
from preprocess.images.resize import Placement, fit_geometry, fit_sizes
from preprocess.item_contents import ItemFiles
from preprocess.item_files import too_large
from preprocess.items import Item, Listing
from preprocess.recipe import Maker, Ragged, Rows

_VERSION: Final = 2
"""Of the recipe: raised when the same options give other pixels."""

TURNED: Final = "turned"
"""Tally of photos with masks or boxes that are stored otherwise than upright."""

_SMALL_NBYTES: Final = 150_000
_MANY_ITEMS: Final = 20_000
_MANY_WORKERS: Final = 4
"""Below these, threads were faster than processes; see `ImageRecipe.backend`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecipe:
    """How photos become samples.

    Attributes:
        chosen: The user's options.
        key_nbytes: Bytes of the longest key.
        class_count: Classes of the dataset; 0 stores no label.
        box_classes: Classes of boxes, in the order of their labels.
        label_classes: Classes of which a photo may have several, in the order of their labels.
    """

    chosen: ImageOptions
    key_nbytes: int
    class_count: int
    box_classes: tuple[str, ...] = ()
    label_classes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Name of the modality."""
        return "images"

    def options(self) -> dict[str, Any]:
        """Return everything that changes bytes, as JSON values."""
        values = asdict(self.chosen)
        sizes = [list(size) for size in self.chosen.sizes]
        alpha = self.chosen.alpha or self.chosen.background
        changed: dict[str, Any] = {"sizes": sizes, "alpha": alpha}
        for name in ("masks", "boxes"):  # not where they lie
            changed[name] = values[name] is not None
        metadata = self.chosen.metadata
        changed["metadata"] = metadata is not None
        changed["targets"] = [] if metadata is None else [*metadata.targets]
        changed |= {"box_classes": [*self.box_classes], "label_classes": [*self.label_classes]}
        for name in ("store", "quality", "compress"):
            del values[name]
        changed |= self.chosen.storage.recorded()
        if self.chosen.key_bytes is None:
            del values["key_bytes"]  # datasets are older than this option
        if self.chosen.max_item_nbytes == MAX_ITEM_NBYTES:
            del values["max_item_nbytes"]  # likewise
        if not self.chosen.floats or self.chosen.depth == 16:
            del values["floats"]  # likewise; a depth of 16 says it
        if self.chosen.fit == BUCKET:
            found = {size_name(size): self.chosen.buckets(size) for size in self.chosen.sizes}
            changed["buckets"] = {name: [list(s) for s in shapes] for name, shapes in found.items()}
        else:
            del values["bucket_step"], values["bucket_ratio"]
        return {**values, **changed, "version": _VERSION}

    def facts(self) -> dict[str, Any]:
        """Return nothing: the options say it all."""
        return {}

    def backend(self, listing: Listing, workers: int) -> str:
        """Choose threads, unless many small files on many cores make the interpreter the limit.

        Measured on 16 cores: at 2048x1536 threads led at every worker count; at 500x375 (37 kB a
        file) processes led by 1.3 at 4 workers and by 2.4 at 16, after about 3 s to start.
        """
        mean = sum(i.nbytes for items in listing.splits.values() for i in items) / listing.count
        small = mean < _SMALL_NBYTES and listing.count >= _MANY_ITEMS
        return "loky" if small and workers >= _MANY_WORKERS else "threading"

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return one image field per size, the label if there are classes, and the key."""
        return sample_fields(
            self.chosen,
            key_nbytes=self.key_nbytes,
            classes=self.class_count,
            box_classes=len(self.box_classes),
            label_classes=len(self.label_classes),
        )

    def _values(self, item: Item) -> dict[str, Any]:
        """Return what the table says of a photo, as it is stored."""
        values = item.values
        found: dict[str, Any] = {}
        for field in value_fields(self.chosen, len(self.label_classes)):
            if values is None:
                raise SampleError(item.key, "the metadata do not list it")
            if field.role == "targets":
                found[field.name] = np.array(values.targets, "<f4")
            else:
                found[field.name] = np.zeros(field.shape, np.uint8)
                found[field.name][list(values.labels)] = 1
        return found

    @property
    def one_to_one(self) -> bool:
        """Every photo is one sample of so many bytes, unless the options say otherwise."""
        chosen = self.chosen
        of_any_length = chosen.is_variable or chosen.boxes is not None or chosen.store == "jpeg"
        return chosen.pages == "first" and not of_any_length

    def expected_nbytes(self, item: Item) -> int:
        """Return the bytes of one sample, or an estimate where sizes or pages differ."""
        return expected_nbytes(self.chosen, self.fields(), item)

    def predicted_nbytes(self, item: Item) -> float:
        """Return the same: all samples are its own."""
        return self.expected_nbytes(item)

    def too_large(self, item: Item) -> SampleError | None:
        """Refuse a photo with more bytes than the options allow, or with such a mask."""
        limit = self.chosen.max_item_nbytes
        return too_large(item, limit) or too_large_mask(item, limit)

    def refusal(self, tallies: Mapping[str, tuple[int, ...]]) -> str | None:  # noqa: ARG002
        """Return None: every photo is of use."""
        return None

    def notes(self, tallies: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
        """Say how many photos are turned while something else may be of them as stored."""
        turned = sum(tallies.get(TURNED, ()))
        if not turned:
            return ()
        paired = " and ".join(name for name in ("masks", "boxes") if getattr(self.chosen, name))
        photos = f"{turned:,} photo{'s' * (turned != 1)}"
        taken = f"{paired} are taken to be of the upright pictures"
        return (f"Exif or a like tag turns or mirrors {photos}: {taken}",)

    @contextmanager
    def opened(self) -> Iterator[Maker]:
        """Hold the decoders as threads of ours want them."""
        with decoder_settings():
            yield self

    def samples(self, files: ItemFiles, items: Sequence[Item]) -> Iterator[Rows | SampleError]:
        """Yield one sample, or the reason why not, per item; of a TIFF perhaps one per page."""
        policy = self.chosen.policy()
        for item in items:
            held: Rows | None = None
            try:
                data = files.read(item, self.chosen.max_item_nbytes)
                for picture in decode_pictures(data, key=item.key, policy=policy):
                    if held is not None:
                        yield replace(held, more=True)
                    held = self._sample(files, item, picture)
                if held is not None:
                    yield held
            except SampleError as error:
                files.look_at_mask(item, self.chosen.max_item_nbytes)
                yield error

    def _boxes(
        self, item: Item, picture: tuple[int, int], placement: Placement, name: str
    ) -> dict[str, Any]:
        """Return the boxes of a picture at one size, and their labels."""
        if item.boxes is None:
            listed = "the boxes" if self.chosen.boxes is None else self.chosen.boxes.name
            raise SampleError(item.key, f"{listed} does not list it")
        try:
            fitted, kept = fit_boxes(item.boxes, picture, placement)
        except ValueError as error:
            raise SampleError(item.key, str(error)) from error
        labels = np.array([row[0] for row in item.boxes.rows], narrowest(len(self.box_classes)))
        return {f"boxes_{name}": fitted, f"box_labels_{name}": labels[kept]}

    def _mask(self, files: ItemFiles, item: Item, picture: Picture) -> NDArray[Any] | None:
        """Return the whole mask of a picture, if masks are asked for: [H, W]."""
        chosen = self.chosen
        if chosen.masks is None:
            return None
        limits = {"max_pixels": chosen.max_pixels, "max_nbytes": chosen.max_item_nbytes}
        mask = read_mask(files, item, chosen.masks, **limits)
        height, width = picture.pixels.shape[:2]
        try:
            check_mask(
                mask,
                (width, height),
                classes=chosen.mask_classes,
                padding=chosen.mask_padding,
                depth=chosen.mask_depth,
            )
        except ValueError as error:
            name = item.mask.key if item.mask is not None else ""
            raise SampleError(item.key, f"its mask {name}: {error}") from error
        return mask.astype(f"<u{chosen.mask_depth // 8}", copy=False)

    def _sample(self, files: ItemFiles, item: Item, picture: Picture) -> Rows:
        """Return one row of every field: [1, *shape]."""
        chosen = self.chosen
        mask = self._mask(files, item, picture)
        upscale = not chosen.no_upscale
        height, width = picture.pixels.shape[:2]
        stored, fit = chosen.targets(width, height)
        try:
            placements = [
                fit_geometry(width, height, size, fit, upscale=upscale) for size in stored
            ]
        except ValueError as error:
            raise SampleError(item.key, str(error)) from error
        fitted = fit_sizes(
            picture.pixels,  # [H, W, C]
            stored,
            fit=fit,
            resample=chosen.resample,
            background=BACKGROUNDS[chosen.background],
            grayscale=chosen.grayscale,
            upscale=upscale,
        )
        sample: dict[str, Any] = {}
        for size, image, placement in zip(chosen.sizes, fitted, placements, strict=True):
            name = size_name(size)
            sample[f"image_{name}"] = image
            if mask is not None:
                fitted_mask = fit_mask(mask, (width, height), placement, chosen.mask_padding)
                sample[f"mask_{name}"] = fitted_mask
            if chosen.boxes is not None:
                sample |= self._boxes(item, (width, height), placement, name)
            if chosen.has_transforms:
                numbers = (width, height, *placement.source, *placement.target)
                sample[f"transform_{name}"] = np.array(numbers, dtype="<u4")
        if self.class_count:
            sample["label"] = np.array(item.label, dtype=narrowest(self.class_count))
        key = item.key.encode(errors="surrogateescape")
        sample["key"] = np.frombuffer(key.ljust(self.key_nbytes, b"\0"), np.uint8)
        sample |= self._values(item)
        if chosen.pages == "all":
            sample["page"] = np.array(picture.page, dtype="<u4")
        return Rows(
            count=1,
            arrays={field.name: _row(field, sample[field.name]) for field in self.fields()},
            tallies=self._tallies(picture, stored),
        )

    def _tallies(
        self, picture: Picture, stored: Sequence[tuple[int, int]]
    ) -> dict[str, tuple[int, ...]]:
        """Return what is counted of a picture: its profile, and its bucket at each size.

        And whether it was turned, where something of another file belongs to it.
        """
        found: dict[str, tuple[int, ...]] = {}
        if picture.turned and not (self.chosen.masks is None and self.chosen.boxes is None):
            found[TURNED] = (1,)
        if picture.profiled != "none":
            found[f"icc_{picture.profiled}"] = (1,)
        for size, shape in zip(self.chosen.sizes, stored, strict=True):
            if shapes := self.chosen.buckets(size):
                found[f"buckets_{size_name(size)}"] = (*(0,) * shapes.index(shape), 1)
        return found


def _row(field: FieldSpec, array: Any) -> Any:
    """Return one row of a field: [1, *shape], or the values of one sample, or its encoded bytes."""
    if field.encoding is not None:
        array = np.ascontiguousarray(array, field.numpy_dtype)
        encoded = np.frombuffer(encode_sample(field.encoding, array), np.uint8)
        return Ragged(encoded, np.array([len(encoded)], np.int64))
    if not field.ragged:
        return array[None]
    values = np.ascontiguousarray(array).reshape(-1, *field.shape)
    return Ragged(values, np.array([len(values)], np.int64))
