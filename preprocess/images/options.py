"""What `prep images` makes of each photo: the options, and what follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from preprocess.folders import LabelMode
from preprocess.images.beside import MetadataOptions, SplitOptions
from preprocess.images.buckets import BUCKET, RATIO, STEP, bucket_shapes, nearest_bucket
from preprocess.images.policy import (
    MAX_ITEM_NBYTES,
    MAX_PIXELS,
    DecodePolicy,
    Depth,
    Icc,
    Pages,
)
from preprocess.images.resize import MAX_SIDE, VARIABLE_FITS, Fit, Resample
from preprocess.images.storage import Compression, Storage, Store
from preprocess.spelling import Option, OptionError

Fitted = Literal[Fit, "bucket"]
Background = Literal["white", "black"]
Alpha = Literal["white", "black", "keep", "drop"]
BACKGROUNDS: Final[Mapping[str, tuple[int, int, int]]] = {
    "white": (255, 255, 255),
    "black": (0, 0, 0),
}

MAX_CLASSES: Final = 1 << 16
"""Classes that a label of 16 bits can tell apart."""

MAX_KEY_NBYTES: Final = 4096
"""Bytes of the longest path that Linux takes."""

_MAX_MARGIN: Final = 4
_MAX_RATIO: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """What `prep images` makes of each photo; all of it is recorded in the manifest.

    Attributes:
        sizes: (width, height) in pixels, one field each.
        grayscale: Store one channel, BT.601 luma of the decoded colours, instead of RGB.
        fit: "crop" (largest centred part of the target's shape), "pad" (whole picture on a
            background), "stretch"; "shortest" or "longest" side, stored at the size it gets;
            "bucket", a crop to the shape of about as many pixels that suits it best.
        bucket_step: Sides of buckets are multiples of it.
        bucket_ratio: Most times that the longer side of a bucket is as long as the shorter.
        resample: Antialiasing filter: "bicubic", "bilinear", "lanczos", "box" or "hamming".
        background: Colour around padded pictures, and under transparent pixels unless `alpha` says
            something else.
        icc: "srgb" converts the colours of embedded profiles to sRGB; "ignore" leaves them.
        alpha: Under transparent pixels "white" or "black"; "keep" stores RGBA, "drop" the colours
            hidden there; None: the background.
        depth: 8 stores uint8, a sample of 16 bits as v / 257, rounded; 16 stores uint16, a sample
            of 8 bits as v * 257.
        floats: Take TIFFs of floating point too, 0 as black to 1 as white, and refuse values
            beyond; depth 16 always does.
        pages: "first" page of a TIFF, or "all", each a sample.
        labels: "auto" (class folders if every item lies in one), "folders" (insist), "none".
        max_pixels: Pictures with more pixels are refused before they are decoded.
        max_item_nbytes: Files of more bytes, also masks, are refused before they are read.
        follow_links: Take what symbolic links in the source point to.
        no_upscale: Enlarge nothing: "pad", "shortest" and "longest" keep a smaller picture as it
            is, "crop", "stretch" and "bucket" refuse it.
        margin: Stored sides are this much longer than those named, for random crops when training.
        transforms: Store what was done to each picture, also where nothing needs it.
        masks: Folder of masks: for `a/b.jpg` of the source `a/b.png`, with a class index for every
            pixel.
        mask_classes: Values of masks are below it, or `mask_padding`; None allows all.
        mask_depth: Bits of a stored mask's values, 8 or 16.
        mask_padding: Value of masks around padded pictures.
        boxes: A COCO json, or a folder of YOLO text files, with the boxes of the photos.
        metadata: A table beside the photos.
        splits: How photos without split folders are divided.
        store: "raw" pixels, or each picture as a "jpeg", which the loader decodes.
        quality: Of the JPEGs, 1 to 100; None for 95.
        compress: "zstd" or "blosc-lz4": each picture and mask compressed without loss, for zarr.
        key_bytes: Room for the names of photos that are added later; None for the longest of now.
    """

    sizes: tuple[tuple[int, int], ...]
    grayscale: bool = False
    fit: Fitted = "crop"
    bucket_step: int = STEP
    bucket_ratio: float = RATIO
    resample: Resample = "bicubic"
    background: Background = "white"
    icc: Icc = "srgb"
    alpha: Alpha | None = None
    depth: Depth = 8
    floats: bool = False
    pages: Pages = "first"
    labels: LabelMode = "auto"
    max_pixels: int = MAX_PIXELS
    max_item_nbytes: int = MAX_ITEM_NBYTES
    follow_links: bool = False
    no_upscale: bool = False
    margin: float = 1.0
    transforms: bool = False
    masks: Path | None = None
    mask_classes: int | None = None
    mask_depth: Depth = 8
    mask_padding: int = 255
    boxes: Path | None = None
    metadata: MetadataOptions | None = None
    splits: SplitOptions = field(default_factory=SplitOptions)
    store: Store = "raw"
    quality: int | None = None
    compress: Compression | None = None
    key_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse values outside their range, and take paths as texts too."""
        for name in ("masks", "boxes"):
            path = getattr(self, name)
            object.__setattr__(self, name, None if path is None else Path(path))
        if not self.sizes or len(set(self.sizes)) != len(self.sizes):
            raise OptionError(
                Option("sizes"), f"={self.sizes}: expected at least one, all different"
            )
        for size in self.sizes:
            if not all(1 <= side <= MAX_SIDE for side in size):
                raise OptionError(
                    Option("sizes"), f": {size_name(size)}: expected sides in 1..{MAX_SIDE}"
                )
            if self.is_variable and size[0] != size[1]:
                raise OptionError(
                    *(Option("sizes"), f": {size_name(size)}: ", Option("fit", self.fit)),
                    " takes one side, such as 512",
                )
        if not 1 <= self.margin <= _MAX_MARGIN:
            raise OptionError(Option("margin", self.margin), f": expected 1 to {_MAX_MARGIN}")
        choices = {
            "fit": get_args(Fitted),
            "resample": get_args(Resample),
            "background": tuple(BACKGROUNDS),
            "alpha": (None, *get_args(Alpha)),
            "labels": get_args(LabelMode),
            "store": get_args(Store),
            "compress": (None, *get_args(Compression)),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                given = Option(name, getattr(self, name))
                raise OptionError(given, f": expected one of {allowed}")
        if self.grayscale and self.alpha == "keep":
            raise OptionError(
                *(Option("grayscale"), " and ", Option("alpha", "keep")),
                ": RGBA is stored, or one channel of grey",
            )
        self._check_limits()
        self._check_buckets()
        self._check_masks()
        self._check_metadata()
        kept = self.alpha == "keep"
        self.storage.check(
            depth=self.depth, alpha=kept, fit=self.fit, one_size=not self.is_variable
        )
        self.policy()  # checks the rest

    def _check_limits(self) -> None:
        if self.max_item_nbytes < 1:
            raise OptionError(
                Option("max_item_nbytes", self.max_item_nbytes), ": expected at least 1"
            )
        if self.key_bytes is not None and not 1 <= self.key_bytes <= MAX_KEY_NBYTES:
            raise OptionError(
                Option("key_bytes", self.key_bytes), f": expected 1 to {MAX_KEY_NBYTES}"
            )

    def _check_buckets(self) -> None:
        step, ratio = self.bucket_step, self.bucket_ratio
        if self.fit != BUCKET:
            if (step, ratio) != (STEP, RATIO):
                raise OptionError(
                    *(Option("bucket_step"), " and ", Option("bucket_ratio"), ": only with "),
                    Option("fit", BUCKET),
                )
            return
        if type(step) is not int or step < 1:
            raise OptionError(Option("bucket_step", step), ": expected an integer of at least 1")
        if not 1 <= ratio <= _MAX_RATIO:
            raise OptionError(Option("bucket_ratio", ratio), f": expected 1 to {_MAX_RATIO}")
        if self.margin != 1:
            raise OptionError(
                *(Option("margin", self.margin), ": sides of buckets are multiples of "),
                *(Option("bucket_step"), ", with a margin they would not be: name a larger size"),
            )
        for side, _ in self.sizes:
            if side % step:
                near = max(step, round(side / step) * step)
                raise OptionError(
                    *(Option("sizes"), f": {side}: expected a multiple of "),
                    *(Option("bucket_step", step), f", such as {near}"),
                )

    def _check_masks(self) -> None:
        if self.mask_depth not in get_args(Depth):
            raise OptionError(
                Option("mask_depth", self.mask_depth), f": expected one of {get_args(Depth)}"
            )
        most = 2**self.mask_depth - 1
        if not 0 <= self.mask_padding <= most:
            raise OptionError(Option("mask_padding", self.mask_padding), f": expected 0 to {most}")
        if self.mask_classes is not None and not 1 <= self.mask_classes <= most + 1:
            raise OptionError(
                Option("mask_classes", self.mask_classes), f": expected 1 to {most + 1}"
            )
        if self.masks is None and (self.mask_classes, self.mask_depth, self.mask_padding) != (
            None,
            8,
            255,
        ):
            names = map(Option, ("mask_classes", "mask_depth", "mask_padding"))
            first, second, third = names
            raise OptionError(
                *(first, ", ", second, " and ", third, ": only with ", Option("masks"))
            )
        if self.pages == "all" and not (self.masks is None and self.boxes is None):
            raise OptionError(Option("pages", "all"), ": masks and boxes are of one picture a file")

    def _check_metadata(self) -> None:
        columns = (self.splits.column, self.splits.group_by)
        if self.metadata is None and any(name is not None for name in columns):
            raise OptionError("a column to split or group by: only with ", Option("metadata"))
        if self.metadata is not None and self.metadata.label is not None and self.labels != "auto":
            raise OptionError(
                "a label column and ", Option("labels", self.labels), ": give one of them"
            )

    @property
    def storage(self) -> Storage:
        """How pictures and masks are stored."""
        return Storage(
            store=self.store, quality=self.quality, compress=self.compress, grey=self.grayscale
        )

    def policy(self) -> DecodePolicy:
        """Return what these options say of decoding."""
        alpha = self.alpha or self.background
        return DecodePolicy(
            icc=self.icc,
            alpha=alpha if alpha in {"keep", "drop"} else "over",
            background=BACKGROUNDS.get(alpha, (0, 0, 0)),
            depth=self.depth,
            pages=self.pages,
            max_pixels=self.max_pixels,
            floats=self.floats,
        )

    @property
    def is_variable(self) -> bool:
        """Whether pictures differ in stored size."""
        return self.fit == BUCKET or self.fit in VARIABLE_FITS

    @property
    def has_transforms(self) -> bool:
        """Whether what was done to each picture is stored."""
        paired = not (self.masks is None and self.boxes is None)
        return self.transforms or paired or self.is_variable or self.fit == "pad"

    def stored(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return (width, height) in which a named size is stored."""
        return round(size[0] * self.margin), round(size[1] * self.margin)

    def buckets(self, size: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        """Return (width, height) of the buckets of a named size; none without buckets."""
        if self.fit != BUCKET:
            return ()
        return bucket_shapes(size[0], self.bucket_step, self.bucket_ratio)

    def targets(self, width: int, height: int) -> tuple[list[tuple[int, int]], Fit]:
        """Return what a picture is brought to, (width, height) a named size, and how."""
        if self.fit != BUCKET:
            return [self.stored(size) for size in self.sizes], self.fit
        shapes = [self.buckets(size) for size in self.sizes]
        return [nearest_bucket(found, width, height) for found in shapes], "crop"

    @property
    def channels(self) -> int:
        """Channels that are stored."""
        return 1 if self.grayscale else 4 if self.alpha == "keep" else 3


def size_name(size: tuple[int, int]) -> str:
    """Return "512" for (512, 512) and "512x384" (width x height) for (512, 384)."""
    width, height = size
    return str(width) if width == height else f"{width}x{height}"
