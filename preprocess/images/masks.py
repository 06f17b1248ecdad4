"""Masks: a class index for every pixel of a photo, in a file of its own, brought along with it."""

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import SampleError, SourceError
from preprocess.images.bmp import with_read_palette
from preprocess.images.formats import IMAGE_EXTENSIONS, sniff_format
from preprocess.images.headers import read_png_header
from preprocess.images.orientation import read_orientation, turn_upright
from preprocess.images.policy import check_pixels
from preprocess.images.resize import Placement
from preprocess.item_contents import ItemFiles
from preprocess.item_files import too_large
from preprocess.items import Item, Listing
from preprocess.paired import PairedFile

_ENDINGS: Final = (".png", ".tif", ".tiff", ".bmp", ".gif")
_FORMATS: Final = frozenset({"PNG", "TIFF", "BMP", "GIF"})
"""Formats that lose nothing and hold indices."""

_LOSSY: Final = frozenset({"jpeg", "tiff_jpeg", "webp"})
"""Compressions of a TIFF, as Pillow names them, after which values are others."""

_PART_PIXELS: Final = 1 << 21
"""Pixels that are looked at at a time."""


def pair_masks(listing: Listing, folder: Path) -> Listing:
    """Give every photo its mask: the file of the same path but for the ending.

    Photos without one keep none, and are refused by name when they are prepared.

    Raises:
        SourceError: The folder cannot be listed, lies in the source or has it inside; two masks are
            of one photo, or two photos of one mask.
    """
    masks, others = _list_masks(folder)
    where, source = folder.resolve(), listing.root.resolve()
    if where == source or source in where.parents:
        raise SourceError(f"{folder}: the masks lie among the photos; move them beside {source}")
    owners: dict[str, str] = {}
    splits = {}
    for name, items in listing.splits.items():
        found = []
        for item in items:
            stem = os.path.splitext(item.key)[0]
            mask = masks.get(stem)
            if mask is None and stem in others:
                mask = masks[stem] = _look_at(folder, others[stem])
            if mask is not None:
                other = owners.setdefault(stem, item.key)
                if other != item.key:
                    raise SourceError(
                        f"{listing.root}: {other} and {item.key} have one mask, {mask.key}; rename "
                        "one of them"
                    )
            found.append(replace(item, mask=mask))
        splits[name] = tuple(found)
    unused = len(masks) - len(owners)
    note = (f"{unused:,} masks in {folder} belong to no photo",) if unused else ()
    return replace(listing, splits=splits, notes=(*listing.notes, *note))


def _list_masks(folder: Path) -> tuple[dict[str, PairedFile], dict[str, str]]:
    """Return path without ending -> mask, and -> path of another picture, perhaps a preview."""
    found: dict[str, PairedFile] = {}
    others: dict[str, str] = {}

    def fail(error: OSError) -> None:
        raise SourceError(f"{error.filename}: cannot be listed: {error.strerror}") from error

    for above, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in sorted(names):
            if name.startswith("."):
                continue
            key = os.path.relpath(os.path.join(above, name), folder)
            stem, ending = os.path.splitext(key)
            if ending.lower() not in _ENDINGS:
                if ending.lower() in IMAGE_EXTENSIONS:
                    others.setdefault(stem, key)
                continue
            mask = _look_at(folder, key)
            other = found.setdefault(stem, mask)
            if other is not mask:
                raise SourceError(f"{folder}: {other.key} and {key} are masks of one photo")
    if not found:
        raise SourceError(f"{folder}: no mask in it; masks are {', '.join(_ENDINGS)} files")
    return found, others


def _look_at(folder: Path, key: str) -> PairedFile:
    path = folder / key
    try:
        status = path.stat()
    except OSError as error:
        raise SourceError(f"{path}: cannot be looked at: {error.strerror}") from error
    return PairedFile(folder, key, status.st_size, status.st_mtime_ns)


def read_mask(
    files: ItemFiles, item: Item, folder: Path, *, max_pixels: int, max_nbytes: int
) -> NDArray[Any]:
    """Read and decode the mask of a photo.

    Returns:
        [H, W] uint8 or uint16 indices as stored, upright.

    Raises:
        SampleError: There is none, or it is no mask; names both files.
    """
    if item.mask is None:
        stem = os.path.splitext(item.key)[0]
        raise SampleError(item.key, f"it has no mask: {folder.name}/{stem}.png is missing")
    mask = item.mask
    try:
        return decode_mask(files.read_mask(item, max_nbytes), max_pixels)
    except SampleError as error:
        raise SampleError(item.key, f"its mask {mask.key}: {error.reason}") from error
    except Exception as error:  # decoders raise anything; one bad item is one error
        cause = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise SampleError(item.key, f"its mask {mask.key}: {cause[0]}") from error


def too_large_mask(item: Item, max_nbytes: int) -> SampleError | None:
    """Return the error of a photo whose mask is larger than files may be."""
    if item.mask is None or (error := too_large(_as_item(item.mask), max_nbytes)) is None:
        return None
    return SampleError(item.key, f"its mask {item.mask.key}: {error.reason}")


def _as_item(mask: PairedFile) -> Item:
    return Item(mask.key, mask.nbytes, mask.mtime_ns)


def decode_mask(data: bytes, max_pixels: int) -> NDArray[Any]:
    """Decode a mask: indices of a palette, or grey of 1 to 16 bits, as they are stored.

    Returns:
        [H, W] uint8, or uint16 of a file of more than 8 bits; upright, C-contiguous.

    Raises:
        ValueError: It holds colours, or is of a format that loses values.
        Exception: Whatever Pillow raises at damage.
    """
    from PIL import Image

    kind = sniff_format(data)
    if kind not in _FORMATS:
        what = kind or "file of unknown format"
        raise ValueError(f"a {what}: masks are PNG, TIFF, BMP or GIF, which keep values")
    exif = xmp = None
    bits, inverted = 8, False
    if kind == "PNG":
        header = read_png_header(data)
        data, bits, exif, xmp = header.bare, header.depth, header.exif, header.xmp
    elif kind == "BMP":
        data = with_read_palette(data)
    with Image.open(io.BytesIO(data), formats=[kind]) as image:
        check_pixels(image.width, image.height, max_pixels)
        if kind == "TIFF":
            bits, inverted = _stored_in_tiff(image)
        image.load()
        if image.mode not in {"1", "L", "P"} and not image.mode.startswith("I;16"):
            raise ValueError(f"its pixels are {image.mode}, not indices of classes")
        values = np.array(image)  # [H, W]
        if image.mode == "1":
            values = (values ^ inverted).astype(np.uint8)
        elif image.mode == "L":
            values = ~values if inverted else values
            values //= 255 // (2**bits - 1)  # Pillow stretches few bits to 8
        elif image.mode.startswith("I;16"):
            values = values.astype(np.uint16)
    upright = turn_upright(values[:, :, None], read_orientation(exif, xmp))
    return np.ascontiguousarray(upright.reshape(upright.shape[:2]))


def _stored_in_tiff(image: Any) -> tuple[int, bool]:
    """Return the bits of a sample, and whether Pillow turns values of up to 8 bits round.

    Raises:
        ValueError: Its pixels are compressed with loss.

    Source:
        TIFF 6.0: tags 258 (BitsPerSample) and 262 (PhotometricInterpretation, 0: white is zero).
    """
    if (packed := image.info.get("compression")) in _LOSSY:
        raise ValueError(f"its pixels are compressed as {packed}, which loses values")
    tags = image.tag_v2
    return min(8, int(tags.get(258, (1,))[0])), tags.get(262) == 0


def check_mask(
    mask: NDArray[Any], picture: tuple[int, int], *, classes: int | None, padding: int, depth: int
) -> None:
    """Hold a mask against its picture and what values it may have.

    Args:
        mask: [H, W] as decoded.
        picture: (width, height) of the upright picture.
        classes: Values are below it; None allows all.
        padding: A value that is allowed beside them.
        depth: Bits that are stored.

    Raises:
        ValueError: It is of another shape than the picture, or has other values.
    """
    height, width = mask.shape
    across, down = picture
    same = round(width * down / across) == height or round(height * across / down) == width
    if not same:
        raise ValueError(
            f"{width} x {height}, its photo is {across} x {down} upright: another shape"
        )
    most = 2**depth - 1
    allowed = f"0 to {most}" + (" (--mask-depth 16 holds more)" if depth == 8 else "")
    bad = _least_above(mask, most)
    if classes is not None and bad is None:
        allowed = f"0 to {classes - 1} and {padding}"
        bad = _least_above(mask, classes - 1, padding)
    if bad is not None:
        y, x = np.argwhere(mask == bad)[0].tolist()
        raise ValueError(f"value {bad} at x = {x}, y = {y}; allowed are {allowed}")


def _least_above(mask: NDArray[Any], most: int, excused: int | None = None) -> int | None:
    """Return the least value above another, but for one; a part at a time, for the memory."""
    if most >= np.iinfo(mask.dtype).max:
        return None
    flat = mask.reshape(-1)
    found = []
    for start in range(0, len(flat), _PART_PIXELS):
        part = flat[start : start + _PART_PIXELS]
        above = part > most
        if excused is not None and excused > most:
            above &= part != excused
        if above.any():
            found.append(int(part[above].min()))
    return min(found, default=None)


def fit_mask(
    mask: NDArray[Any], picture: tuple[int, int], placement: Placement, padding: int
) -> NDArray[Any]:
    """Do to a mask what was done to its picture: the nearest value, never a new one.

    A pixel gets the value under its centre. The mask may have another size than the picture.

    Args:
        mask: [H, W].
        picture: (width, height) of the picture.
        placement: What was done to it.
        padding: Value around a padded picture.

    Returns:
        [height, width] of the mask's type, C-contiguous.
    """
    left, top, right, bottom = placement.source
    over = placement.target
    columns = _nearest(over[2] - over[0], left, right, mask.shape[1], picture[0])
    rows = _nearest(over[3] - over[1], top, bottom, mask.shape[0], picture[1])
    result = np.full(placement.size[::-1], padding, mask.dtype)
    result[over[1] : over[3], over[0] : over[2]] = _pick(mask, rows, columns)
    return result


def _pick(mask: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """Return the values of some rows and columns: [rows, columns].

    One axis after the other takes a quarter of the time of both at once. The first is the one that
    leaves no more than the mask or the result has, also where that is a line of pixels.
    """
    if len(rows) <= len(mask):
        return np.asarray(mask[rows].take(columns, axis=1))
    return np.asarray(mask.take(columns, axis=1)[rows])


def _nearest(count: int, start: int, stop: int, side: int, whole: int) -> NDArray[np.int64]:
    """Return which of `side` pixels lie under the centres of `count` ones.

    These cover start..stop of a side of `whole` pixels, which the `side` ones cover as well.
    """
    doubled = 2 * np.arange(count, dtype=np.int64) + 1
    # floor((start + (i + 1/2) (stop - start) / count) side / whole), in integers
    return (2 * start * count + doubled * (stop - start)) * side // (2 * count * whole)
