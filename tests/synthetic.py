"""Deterministic tiny inputs: folders of small photos, and files damaged in one known way."""

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Damage = Literal["truncated_jpeg", "html_named_jpeg", "empty_file", "png_with_bad_crc", "fifo"]


def smooth_image(width: int, height: int, *, seed: int) -> NDArray[np.uint8]:
    """Make a picture of slow gradients and one edge, so that JPEG and resizing change it little.

    Returns:
        [H, W, 3] uint8 RGB.
    """
    rng = np.random.default_rng(seed)
    corners = rng.integers(20, 236, size=(2, 2, 3)).astype(np.float64)
    down = np.linspace(0.0, 1.0, height)[:, None, None]
    across = np.linspace(0.0, 1.0, width)[None, :, None]
    top = corners[0, 0] + (corners[0, 1] - corners[0, 0]) * across
    bottom = corners[1, 0] + (corners[1, 1] - corners[1, 0]) * across
    image = top + (bottom - top) * down  # [H, W, 3]
    image[:, : int(width * rng.uniform(0.2, 0.8))] *= 0.8
    pixels: NDArray[np.uint8] = np.rint(image).astype(np.uint8)
    return pixels


def encode_image(pixels: NDArray[np.uint8], suffix: str) -> bytes:
    """Encode [H, W, 3] uint8 RGB as the format that the suffix (".jpg", ".png") names."""
    from io import BytesIO

    from PIL import Image

    buffer = BytesIO()
    if suffix == ".png":
        Image.fromarray(pixels).save(buffer, "PNG")
    else:
        Image.fromarray(pixels).save(buffer, "JPEG", quality=90, subsampling="4:2:0")
    return buffer.getvalue()


def write_image_tree(
    root: Path,
    classes: Sequence[str],
    per_class: int,
    size: tuple[int, int] = (48, 32),
    splits: Sequence[str] | None = None,
    seed: int = 0,
) -> list[str]:
    """Write `root/[split/]class/0000.jpg ...`, every third photo as PNG.

    Args:
        root: Folder to write to; made if absent.
        classes: Folder names.
        per_class: Photos of each class, in each split.
        size: Width and height in pixels.
        splits: Folder names above the classes; None for none.
        seed: The same seed gives the same files; no two photos of a tree are alike.

    Returns:
        Paths relative to `root`, with "/", sorted.
    """
    paths: list[str] = []
    for split in splits if splits is not None else ("",):
        for name in classes:
            folder = root / split / name
            folder.mkdir(parents=True, exist_ok=True)
            for index in range(per_class):
                suffix = ".png" if index % 3 == 2 else ".jpg"
                path = folder / f"{index:04d}{suffix}"
                pixels = smooth_image(*size, seed=seed * 1_000_003 + len(paths))
                path.write_bytes(encode_image(pixels, suffix))
                paths.append(path.relative_to(root).as_posix())
    return sorted(paths)


def write_damaged(path: Path, kind: Damage) -> None:
    """Write one file that must not become a sample.

    Args:
        path: The file; its suffix is the caller's.
        kind: `truncated_jpeg` ends in the middle of the coded data, `html_named_jpeg` is a page,
            `empty_file` has no bytes, `png_with_bad_crc` has one wrong bit in its data chunk, and
            `fifo` is a named pipe: a reader that opens it waits for ever.
    """
    pixels = smooth_image(64, 48, seed=17)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "empty_file":
        path.write_bytes(b"")
    elif kind == "html_named_jpeg":
        path.write_bytes(b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n")
    elif kind == "truncated_jpeg":
        data = encode_image(pixels, ".jpg")
        scan = data.index(b"\xff\xda")
        path.write_bytes(data[: scan + (len(data) - scan) // 2])
    elif kind == "png_with_bad_crc":
        data = encode_image(pixels, ".png")
        start = data.index(b"IDAT")
        (nbytes,) = struct.unpack(">I", data[start - 4 : start])
        end = start + 4 + nbytes
        wrong = zlib.crc32(data[start:end]) ^ 1
        path.write_bytes(data[:end] + struct.pack(">I", wrong) + data[end + 4 :])
    else:
        raise ValueError(f"kind: {kind!r}, must be one of {get_args(Damage)}")
