"""Images: a folder of photos -> upright, resized uint8 arrays at several sizes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np

from loaders.format.fields import FieldSpec
from preprocess.errors import SampleError, SourceError
from preprocess.folders import LabelMode
from preprocess.images.decode import decode_pictures
from preprocess.images.decoder_settings import decoder_settings
from preprocess.images.finish import Picture
from preprocess.images.formats import HEAD_NBYTES, IMAGE_EXTENSIONS, sniff_format
from preprocess.images.policy import MAX_PIXELS, DecodePolicy, Depth, Icc, Pages
from preprocess.images.resize import Fit, Resample, fit_sizes
from preprocess.item_files import read_item
from preprocess.output import check_paths
from preprocess.plan import Plan, RunOptions, plan_run
from preprocess.recipe import Maker, Rows
from preprocess.report import Report
from preprocess.run import OnProgress, run
from preprocess.sources import Item, Listing, Wanted, list_folder

Background = Literal["white", "black"]
Alpha = Literal["white", "black", "keep", "drop"]
BACKGROUNDS: Final[Mapping[str, tuple[int, int, int]]] = {
    "white": (255, 255, 255),
    "black": (0, 0, 0),
}

_VERSION: Final = 2
"""Of the recipe: raised when the same options give other pixels."""

_PAGE_NBYTES: Final = 100_000
"""Bytes of a TIFF that are taken for a page where shards are planned."""

_MAX_SIDE: Final = 16384
"""Pixels of a stored side: beyond any model's input."""

_SMALL_NBYTES: Final = 150_000
_MANY_ITEMS: Final = 20_000
_MANY_WORKERS: Final = 4
"""Below these, threads were faster than processes; see `ImageRecipe.backend`."""

WANTED: Final = Wanted(
    what="image",
    extensions=IMAGE_EXTENSIONS,
    recognizes=lambda head: sniff_format(head) is not None,
    head_nbytes=HEAD_NBYTES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """What `prep images` makes of each photo; all of it is recorded in the manifest.

    Attributes:
        sizes: (width, height) in pixels, one field each.
        grayscale: Store one channel, BT.601 luma of the decoded colours, instead of RGB.
        fit: "crop" (largest centred part of the target's shape), "pad" (whole picture on a
            background) or "stretch".
        resample: Antialiasing filter: "bicubic", "bilinear", "lanczos", "box" or "hamming".
        background: Colour around padded pictures, and under transparent pixels unless `alpha` says
            something else.
        icc: "srgb" converts the colours of embedded profiles to sRGB; "ignore" leaves them.
        alpha: Under transparent pixels "white" or "black"; "keep" stores RGBA, "drop" the colours
            hidden there; None: the background.
        depth: 8 stores uint8, a sample of 16 bits as v / 257, rounded; 16 stores uint16, a sample
            of 8 bits as v * 257.
        pages: "first" page of a TIFF, or "all", each a sample.
        labels: "auto" (class folders if every item lies in one), "folders" (insist), "none".
        max_pixels: Pictures with more pixels are refused before they are decoded.
        follow_links: Take what symbolic links in the source point to.
    """

    sizes: tuple[tuple[int, int], ...]
    grayscale: bool = False
    fit: Fit = "crop"
    resample: Resample = "bicubic"
    background: Background = "white"
    icc: Icc = "srgb"
    alpha: Alpha | None = None
    depth: Depth = 8
    pages: Pages = "first"
    labels: LabelMode = "auto"
    max_pixels: int = MAX_PIXELS
    follow_links: bool = False

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        if not self.sizes or len(set(self.sizes)) != len(self.sizes):
            raise ValueError(f"sizes={self.sizes}: expected at least one, all different")
        for size in self.sizes:
            if not all(1 <= side <= _MAX_SIDE for side in size):
                raise ValueError(f"sizes: {size}: expected (width, height) in 1..{_MAX_SIDE}")
        choices = {
            "fit": get_args(Fit),
            "resample": get_args(Resample),
            "background": tuple(BACKGROUNDS),
            "alpha": (None, *get_args(Alpha)),
            "labels": get_args(LabelMode),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected one of {allowed}")
        if self.grayscale and self.alpha == "keep":
            raise ValueError("grayscale and alpha='keep': RGBA is stored, or one channel of grey")
        self.policy()  # checks the rest

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
        )

    @property
    def channels(self) -> int:
        """Channels that are stored."""
        return 1 if self.grayscale else 4 if self.alpha == "keep" else 3


def size_name(size: tuple[int, int]) -> str:
    """Return "512" for (512, 512) and "512x384" (width x height) for (512, 384)."""
    width, height = size
    return str(width) if width == height else f"{width}x{height}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecipe:
    """How photos become samples.

    Attributes:
        chosen: The user's options.
        key_nbytes: Bytes of the longest key.
        class_count: Classes of the dataset; 0 stores no label.
    """

    chosen: ImageOptions
    key_nbytes: int
    class_count: int

    @property
    def kind(self) -> str:
        """Name of the modality."""
        return "images"

    def options(self) -> dict[str, Any]:
        """Return everything that changes bytes, as JSON values."""
        values = asdict(self.chosen)
        sizes = [list(size) for size in self.chosen.sizes]
        alpha = self.chosen.alpha or self.chosen.background
        return {**values, "sizes": sizes, "alpha": alpha, "version": _VERSION}

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

    @property
    def _label_dtype(self) -> str:
        return "uint8" if self.class_count <= 1 << 8 else "uint16"

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return one image field per size, the label if there are classes, and the key."""
        found = [
            FieldSpec(
                name=f"image_{size_name(size)}",
                dtype=f"uint{self.chosen.depth}",
                shape=(size[1], size[0], self.chosen.channels),
                role="image",
            )
            for size in self.chosen.sizes
        ]
        if self.class_count:
            found.append(FieldSpec(name="label", dtype=self._label_dtype, shape=(), role="label"))
        found.append(FieldSpec(name="key", dtype="uint8", shape=(self.key_nbytes,), role="key"))
        if self.chosen.pages == "all":
            found.append(FieldSpec(name="page", dtype="uint32", shape=(), role="page"))
        return tuple(found)

    @property
    def one_to_one(self) -> bool:
        """Every photo is one sample, unless a TIFF may have several pages."""
        return self.chosen.pages == "first"

    def expected_nbytes(self, item: Item) -> int:
        """Return the bytes of one sample, or of as many as a TIFF may have pages."""
        pages = 1
        if not self.one_to_one and item.key.lower().endswith((".tif", ".tiff")):
            pages = max(1, item.nbytes // _PAGE_NBYTES)
        return pages * sum(field.nbytes for field in self.fields())

    def refusal(self, tallies: Mapping[str, tuple[int, ...]]) -> str | None:  # noqa: ARG002
        """Return None: every photo is of use."""
        return None

    @contextmanager
    def opened(self) -> Iterator[Maker]:
        """Hold the decoders as threads of ours want them."""
        with decoder_settings():
            yield self

    def samples(self, source: Path, items: Sequence[Item]) -> Iterator[Rows | SampleError]:
        """Yield one sample, or the reason why not, per item; of a TIFF perhaps one per page."""
        policy = self.chosen.policy()
        for item in items:
            held: Rows | None = None
            try:
                data = read_item(source, item)
                for picture in decode_pictures(data, key=item.key, policy=policy):
                    if held is not None:
                        yield replace(held, more=True)
                    held = self._sample(item, picture)
                if held is not None:
                    yield held
            except SampleError as error:
                yield error

    def _sample(self, item: Item, picture: Picture) -> Rows:
        """Return one row of every field: [1, *shape]."""
        chosen = self.chosen
        fitted = fit_sizes(
            picture.pixels,  # [H, W, C]
            chosen.sizes,
            fit=chosen.fit,
            resample=chosen.resample,
            background=BACKGROUNDS[chosen.background],
            grayscale=chosen.grayscale,
        )
        names = (f"image_{size_name(size)}" for size in chosen.sizes)
        sample: dict[str, Any] = dict(zip(names, fitted, strict=True))
        if self.class_count:
            sample["label"] = np.array(item.label, dtype=self._label_dtype)
        key = item.key.encode(errors="surrogateescape")
        sample["key"] = np.frombuffer(key.ljust(self.key_nbytes, b"\0"), np.uint8)
        if chosen.pages == "all":
            sample["page"] = np.array(picture.page, dtype="<u4")
        counted = "" if picture.profiled == "none" else f"icc_{picture.profiled}"
        return Rows(
            count=1,
            arrays={name: array[None] for name, array in sample.items()},
            tallies={counted: (1,)} if counted else {},
        )


def plan_images(
    source: Path,
    out: Path,
    options: ImageOptions,
    run_options: RunOptions,
    limit: int | None = None,
) -> Plan:
    """Lay out a run over a folder of photos; nothing is written.

    Args:
        source: Folder of photos; class folders and split folders as `list_folder` reads them.
        out: Folder to write the dataset to.
        options: What to make of each photo.
        run_options: How to run.
        limit: Prepare only so many items, evenly spaced over the input.

    Raises:
        SourceError: There is nothing to prepare.
        OutputError: The folders overlap.
    """
    listing = list_folder(source, WANTED, labels=options.labels, follow_links=options.follow_links)
    check_paths(source, out)
    if len(listing.classes) > 1 << 16:
        raise SourceError(
            f"{source}: {len(listing.classes):,} class folders, labels hold up to {1 << 16:,}; "
            "--labels none stores none"
        )
    if limit is not None:
        listing = listing.limited(limit)
    recipes = {}
    for name, items in listing.splits.items():
        longest = max(len(item.key.encode(errors="surrogateescape")) for item in items)
        labelled = items[0].label is not None
        recipes[name] = ImageRecipe(
            chosen=options,
            key_nbytes=longest,
            class_count=len(listing.classes) if labelled else 0,
        )
    return replace(plan_run(listing, out, recipes, run_options), aside={"limit": limit})


def images_to_shards(
    source: Path | str,
    out: Path | str,
    options: ImageOptions,
    run_options: RunOptions | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> Report:
    """Prepare a folder of photos as a dataset: what `prep images` does.

    Args:
        source: Folder of photos.
        out: Folder to write the dataset to.
        options: What to make of each photo.
        run_options: How to run; the defaults suit most.
        on_progress: Told (samples, skipped, bytes) as they are made, from worker threads.

    Returns:
        What was done; items that could not be read are in its `skipped`.

    Raises:
        SourceError: There is nothing to prepare.
        OutputError: The output folder cannot take the dataset.
    """
    chosen = run_options or RunOptions()
    return run(plan_images(Path(source), Path(out), options, chosen), chosen, on_progress)
