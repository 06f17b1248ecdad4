"""Masks go with their photos: indices as stored, the nearest value, never a new one."""

import io
import os
import re
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image  # noqa: TID253 - a test may load what it compares with

from loaders import Loader, open_dataset
from preprocess import ImageOptions, RunOptions, SourceError, images_to_shards
from preprocess.images.decode import decode_image
from preprocess.images.masks import check_mask, decode_mask, fit_mask
from preprocess.images.resize import FITS, Fit, fit_geometry

SIDES = st.integers(1, 60)


def squares(width: int, height: int, values: list[int], dtype: Any = np.uint8) -> NDArray[Any]:
    rng = np.random.default_rng(width * 1000 + height)
    small = rng.choice(np.array(values, dtype), (-(-height // 8), -(-width // 8)))
    return np.kron(small, np.ones((8, 8), dtype)).astype(dtype)[:height, :width]


def write_pair(folder: Path, name: str, mask: NDArray[Any], size: tuple[int, int]) -> None:
    """Write a photo whose red is its mask's value, and the mask."""
    for below in ("photos", "masks"):
        (folder / below / name).parent.mkdir(parents=True, exist_ok=True)
    grey = Image.fromarray((mask & 255).astype(np.uint8)).resize(size, Image.Resampling.NEAREST)
    Image.merge("RGB", [grey] * 3).save(folder / "photos" / f"{name}.png")
    Image.fromarray(mask).save(folder / "masks" / f"{name}.png")


def prepare(tmp_path: Path, **options: Any) -> Any:
    chosen = ImageOptions(**{"sizes": ((16, 16),), "masks": tmp_path / "masks", **options})
    return images_to_shards(tmp_path / "photos", tmp_path / "out", chosen, RunOptions(workers=1))


@given(
    width=SIDES,
    height=SIDES,
    factor=st.sampled_from([1, 2, 3]),
    size=st.tuples(SIDES, SIDES),
    fit=st.sampled_from(FITS),
    data=st.data(),
)
def test_no_fit_makes_a_new_value_and_the_nearest_centre_decides(
    width: int, height: int, factor: int, size: tuple[int, int], fit: Fit, data: st.DataObject
) -> None:
    values = np.array([0, 1, 5, 254], np.uint8)
    mask = values[np.random.default_rng(width).integers(0, 4, (height * factor, width * factor))]
    if fit in {"shortest", "longest"}:
        size = (size[0], size[0])
    place = fit_geometry(width, height, size, fit)
    found = fit_mask(mask, (width, height), place, padding=255)
    assert found.shape == place.size[::-1]
    left, top, right, bottom = place.target
    inside = np.zeros(found.shape, bool)
    inside[top:bottom, left:right] = True
    assert (found[~inside] == 255).all()
    assert set(np.unique(found[inside])) <= {0, 1, 5, 254}
    x = data.draw(st.integers(left, right - 1))
    y = data.draw(st.integers(top, bottom - 1))
    across = place.source[0] + (x - left + 0.5) * (place.source[2] - place.source[0]) / (
        right - left
    )
    down = place.source[1] + (y - top + 0.5) * (place.source[3] - place.source[1]) / (bottom - top)
    near = {
        int(mask[min(int(v * factor), mask.shape[0] - 1), min(int(u * factor), mask.shape[1] - 1)])
        for u in (across - 1e-9, across + 1e-9)
        for v in (down - 1e-9, down + 1e-9)
    }
    assert int(found[y, x]) in near


@pytest.mark.parametrize("shape", [(1, 1_000_000), (1_000_000, 1)])
def test_a_line_of_pixels_is_fitted_in_no_more_memory_than_itself_and_the_result(
    shape: tuple[int, int],
) -> None:
    mask = np.zeros(shape, np.uint8)
    mask.reshape(-1)[mask.size // 2 :] = 7
    place = fit_geometry(shape[1], shape[0], (64, 64), "stretch")
    tracemalloc.start()
    found = fit_mask(mask, shape[::-1], place, padding=255)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.count_nonzero(found) == found.size // 2
    assert peak < 2 * mask.nbytes


@given(
    shape=st.tuples(SIDES, SIDES),
    values=st.lists(st.integers(0, 600), min_size=1, max_size=4),
    classes=st.none() | st.integers(1, 256),
    padding=st.integers(0, 255),
    depth=st.sampled_from([8, 16]),
)
def test_the_least_value_that_is_not_allowed_is_named_where_it_is_first(
    shape: tuple[int, int], values: list[int], classes: int | None, padding: int, depth: int
) -> None:
    dtype = np.uint8 if max(values) < 256 else np.uint16
    mask = np.random.default_rng(shape).choice(np.array(values, dtype), shape)
    stored = range(2**depth)
    allowed = {*stored} if classes is None else {*range(classes), padding}
    there = set(mask.reshape(-1).tolist())
    refused = sorted(there - {*stored}) or sorted(there - allowed)
    picture = shape[::-1]
    if not refused:
        check_mask(mask, picture, classes=classes, padding=padding, depth=depth)
        return
    first = mask.reshape(-1).tolist().index(refused[0])
    y, x = divmod(first, shape[1])
    with pytest.raises(ValueError, match=re.escape(f"value {refused[0]} at x = {x}, y = {y};")):
        check_mask(mask, picture, classes=classes, padding=padding, depth=depth)


def test_a_mask_of_many_pixels_is_looked_at_to_its_end() -> None:
    mask = np.zeros((1500, 2000), np.uint8)
    mask[0, 5], mask[-1, -1], mask[-1, -2] = 9, 8, 255
    with pytest.raises(ValueError, match="value 8 at x = 1999, y = 1499; allowed are 0 to 1 and"):
        check_mask(mask, (2000, 1500), classes=2, padding=255, depth=8)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("colour", [0, 3])
def test_indices_of_few_bits_stay_as_they_are(bits: int, colour: int) -> None:
    values = np.arange(16).reshape(2, 8) % 2**bits
    rows = b""
    for row in values:
        digits = "".join(f"{value:0{bits}b}" for value in row)
        rows += b"\0" + int(digits, 2).to_bytes(bits, "big")
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 8, 2, bits, colour, 0, 0, 0))]
    chunks += [(b"PLTE", bytes(range(3 * 2**bits % 256)) or bytes(768))] if colour else []
    chunks += [(b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
    np.testing.assert_array_equal(decode_mask(data, 10**6), values)


def packed(values: NDArray[Any], bits: int) -> list[bytes]:
    """Return rows of values of few bits, each of whole bytes."""
    rows = ["".join(f"{value:0{bits}b}" for value in row) for row in values.tolist()]
    return [int(row, 2).to_bytes(len(row) // 8, "big") for row in rows]


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("white", [0, 1])
def test_values_of_a_tiff_stay_as_they_are(bits: int, white: int) -> None:
    values = np.arange(16).reshape(2, 8) % 2**bits
    data = b"".join(packed(values, bits))
    data = values.astype("<u2").tobytes() if bits == 16 else data
    tags = {256: 8, 257: 2, 258: bits, 259: 1, 262: white, 273: 8, 277: 1, 278: 2, 279: len(data)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    head = b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags))
    np.testing.assert_array_equal(decode_mask(head + entries + bytes(4), 10**6), values)


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("greys", [[0, 255], [0], range(16), range(0, 256, 17)])
def test_indices_of_a_bmp_stay_as_they_are_whatever_the_palette(bits: int, greys: Any) -> None:
    colours = greys[: 2**bits]
    values = np.arange(64).reshape(2, 32) % len(colours)
    rows = b"".join(packed(values, bits)[::-1])
    palette = b"".join(bytes([grey] * 3 + [0]) for grey in colours)
    sizes = (40, 32, 2, 1, bits, 0, len(rows), 0, 0, len(colours), 0)
    start = 54 + len(palette)
    head = b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start)
    data = head + struct.pack("<IiiHHIIiiII", *sizes) + palette + rows
    np.testing.assert_array_equal(decode_mask(data, 10**6), values)
    shown = np.array(colours)[values]
    np.testing.assert_array_equal(decode_image(data, key="k")[:, :, 1], shown)


def test_a_mask_that_is_compressed_with_loss_is_refused() -> None:
    buffer = io.BytesIO()
    Image.fromarray(squares(16, 16, [0, 9])).save(buffer, "TIFF", compression="jpeg")
    with pytest.raises(ValueError, match="compressed as jpeg, which loses values"):
        decode_mask(buffer.getvalue(), 10**6)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_masks_are_whole(kind: str) -> None:
    values = np.array([[0, 300], [65535, 7]], np.uint16)
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, kind)
    found = decode_mask(buffer.getvalue(), 10**6)
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_photo_and_mask_stay_aligned(tmp_path: Path, fit: Fit, container: Any) -> None:
    for number, size in enumerate([(64, 48), (48, 64), (40, 40)]):
        write_pair(tmp_path, f"a/{number}", squares(*size, [0, 60, 120, 180]), size)
    options = ImageOptions(
        sizes=((32, 32), (16, 16)), fit=fit, resample="box", masks=tmp_path / "masks",
        mask_classes=181,
    )  # fmt: skip
    run = RunOptions(container=container)
    images_to_shards(tmp_path / "photos", tmp_path / "out", options, run)
    ds = open_dataset(tmp_path / "out", size=32)
    batch = next(iter(Loader(ds, 3, shuffle=False)))
    assert len(batch["mask"]) == 3
    for number, (image, mask) in enumerate(zip(batch["image"], batch["mask"], strict=True)):
        assert mask.shape == image.shape[1:]
        assert str(mask.dtype) == "torch.uint8"
        sample = ds[number]
        left, top, right, bottom = sample["transform"].tolist()[6:]
        seen = image[0, top:bottom, left:right].numpy().astype(int)
        kept = mask[top:bottom, left:right].numpy().astype(int)
        flat = np.isin(seen, [0, 60, 120, 180])  # no border runs through the pixel
        assert flat.mean() > 0.4
        assert (seen == kept)[flat].mean() > 0.93
        assert (mask.numpy() == sample["mask"].numpy()).all()
        assert set(np.unique(mask)) <= {0, 60, 120, 180, 255}


def test_an_upright_mask_suits_a_photo_that_exif_turns(tmp_path: Path) -> None:
    mask = squares(40, 24, [0, 100, 200])
    write_pair(tmp_path, "a", mask, (40, 24))
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = Image.open(tmp_path / "photos/a.png").transpose(Image.Transpose.ROTATE_90)
    photo.save(tmp_path / "photos/a.png", exif=exif)
    prepare(tmp_path, sizes=((40, 24),))
    sample = open_dataset(tmp_path / "out")[0]
    np.testing.assert_array_equal(sample["mask"].numpy(), mask)
    np.testing.assert_array_equal(sample["image"][0].numpy(), mask)
    Image.open(tmp_path / "masks/a.png").transpose(Image.Transpose.ROTATE_90).save(
        tmp_path / "masks/a.png"
    )
    write_pair(tmp_path, "b", mask, (40, 24))
    report = prepare_again(tmp_path)
    assert "a.png: 24 x 40, its photo is 40 x 24 upright" in dict(report.skipped)["a.png"]


def prepare_again(tmp_path: Path, **options: Any) -> Any:
    chosen = ImageOptions(sizes=((16, 16),), masks=tmp_path / "masks", **options)
    run = RunOptions(workers=1, overwrite=True)
    return images_to_shards(tmp_path / "photos", tmp_path / "out", chosen, run)


def test_what_is_wrong_with_a_mask_names_both_files(tmp_path: Path) -> None:
    good = squares(32, 32, [0, 1])
    for name in ("good", "missing", "colours", "value", "cut", "jpeg"):
        write_pair(tmp_path, name, good, (32, 32))
    masks = tmp_path / "masks"
    (masks / "missing.png").unlink()
    Image.new("RGB", (32, 32)).save(masks / "colours.png")
    bad = good.copy()
    bad[3, 4] = 9
    Image.fromarray(bad).save(masks / "value.png")
    (masks / "cut.png").write_bytes((masks / "good.png").read_bytes()[:-20])
    Image.fromarray(good).save(masks / "jpeg.png", "JPEG")
    report = prepare(tmp_path, mask_classes=2)
    assert report.samples == {"train": 1}
    reasons = dict(report.skipped)
    assert f"no mask: {masks.name}/missing.png is missing" in reasons["missing.png"]
    assert "its mask colours.png: its pixels are RGB" in reasons["colours.png"]
    assert (
        "its mask value.png: value 9 at x = 4, y = 3; allowed are 0 to 1 and 255"
        in (reasons["value.png"])
    )
    assert "its mask cut.png: " in reasons["cut.png"]
    assert "its mask jpeg.png: a JPEG" in reasons["jpeg.png"]


@pytest.mark.parametrize("ending", ["jpg", "JPEG", "webp", "jp2"])
def test_a_mask_of_a_format_that_loses_values_is_refused_as_that(
    tmp_path: Path, ending: str
) -> None:
    good = squares(32, 32, [0, 1])
    for name in ("a", "b", "c"):
        write_pair(tmp_path, name, good, (32, 32))
    masks = tmp_path / "masks"
    (masks / "a.png").unlink()
    Image.fromarray(good).save(masks / f"a.{ending}")
    Image.fromarray(good).save(masks / f"b.{ending}")  # a preview beside the mask is none
    (masks / "c.png").rename(masks / f"c.{ending}")
    (masks / f"nobody.{ending}").symlink_to("nowhere")
    report = prepare(tmp_path)
    kind = {"jpg": "JPEG", "jp2": "JPEG2000"}.get(ending, ending.upper())
    wanted = f"its mask a.{ending}: a {kind}: masks are PNG, TIFF, BMP or GIF, which keep values"
    assert dict(report.skipped) == {"a.png": wanted}  # c is a PNG by content
    assert not any("no photo" in note for note in report.notes)


def test_values_beyond_8_bits_need_the_depth_that_holds_them(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_pair(tmp_path, name, squares(32, 32, [0, 300], np.uint16), (32, 32))
    write_pair(tmp_path, "c", squares(32, 32, [0, 3]), (32, 32))
    report = prepare(tmp_path)
    reason = dict(report.skipped)["a.png"]
    assert "value 300 at" in reason
    assert reason.endswith("allowed are 0 to 255 (--mask-depth 16 holds more)")
    prepare_again(tmp_path, mask_depth=16)
    ds = open_dataset(tmp_path / "out")
    assert str(ds[0]["mask"].dtype) == "torch.uint16"
    assert 300 in ds[0]["mask"].numpy()


def test_folders_of_masks_that_are_ambiguous_are_refused(tmp_path: Path) -> None:
    write_pair(tmp_path, "a", squares(32, 32, [0, 1]), (32, 32))
    with pytest.raises(SourceError, match="lie among the photos"):
        prepare(tmp_path, masks=tmp_path / "photos")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no mask in it"):
        prepare(tmp_path, masks=tmp_path / "empty")
    with pytest.raises(SourceError, match="cannot be listed"):
        prepare(tmp_path, masks=tmp_path / "nowhere")
    Image.new("L", (32, 32)).save(tmp_path / "masks/a.bmp")
    with pytest.raises(SourceError, match="are masks of one photo"):
        prepare(tmp_path)
    (tmp_path / "masks/a.bmp").unlink()
    Image.new("RGB", (32, 32)).save(tmp_path / "photos/a.jpg")
    with pytest.raises(SourceError, match="have one mask"):
        prepare(tmp_path)
    (tmp_path / "photos/a.jpg").unlink()
    (tmp_path / "masks/loose.png").symlink_to("nowhere")
    with pytest.raises(SourceError, match="cannot be looked at"):
        prepare(tmp_path)


def test_a_changed_mask_is_another_input_and_a_moved_one_is_not(tmp_path: Path) -> None:
    write_pair(tmp_path, "a", squares(32, 32, [0, 1]), (32, 32))
    first = prepare(tmp_path)
    manifest = (tmp_path / "out/manifest.json").read_bytes()
    assert prepare(tmp_path).made == 0
    os.utime(tmp_path / "masks/a.png", ns=(1, 1))
    changed = prepare_again(tmp_path)
    assert changed.run_hash != first.run_hash
    (tmp_path / "masks").rename(tmp_path / "elsewhere")
    options = ImageOptions(sizes=((16, 16),), masks=tmp_path / "elsewhere")
    images_to_shards(tmp_path / "photos", tmp_path / "other", options, RunOptions(workers=1))
    assert (tmp_path / "other/manifest.json").read_bytes() == manifest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_classes": 5}, "only with masks"),
        ({"masks": Path("m"), "mask_classes": 257}, "mask_classes=257: expected 1 to 256"),
        ({"masks": Path("m"), "mask_padding": 256}, "mask_padding=256: expected 0 to 255"),
        ({"masks": Path("m"), "mask_depth": 12}, "mask_depth=12"),
        ({"masks": Path("m"), "pages": "all"}, "of one picture a file"),
    ],
)
def test_mask_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageOptions(sizes=((8, 8),), **options)
