"""One encoded image in, upright RGB or a named refusal out."""

import io
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps  # noqa: TID253 - a test may load what it compares with

from preprocess.errors import SampleError
from preprocess.images.decode import decode_image
from preprocess.images.decoder_settings import decoder_settings
from preprocess.images.orientation import read_orientation
from preprocess.images.policy import MAX_PIXELS, DecodePolicy

WHITE = (255, 255, 255)


@pytest.fixture(autouse=True)
def _prepared() -> Iterator[None]:
    with decoder_settings():
        yield


def photo(width: int = 61, height: int = 47, seed: int = 0) -> NDArray[np.uint8]:
    """Smooth and lopsided, so that JPEG keeps it and no turn maps it to itself: [H, W, 3]."""
    y, x = np.mgrid[0:height, 0:width]
    rng = np.random.default_rng(seed)
    waves = [
        127 + 90 * np.sin(x / 17 + k) * np.cos(y / 11 + k) + rng.integers(30) for k in range(3)
    ]
    pixels = np.stack(waves, 2)
    pixels[: height // 3, : width // 2, 0] = 250
    return pixels.clip(0, 255).astype(np.uint8)


def encode(image: Image.Image | NDArray[Any], kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def by_pillow(data: bytes, background: tuple[int, int, int] = WHITE) -> NDArray[np.uint8]:
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        canvas = Image.new("RGBA", image.size, (*background, 255))
        image = Image.alpha_composite(canvas, image.convert("RGBA"))
    return np.array(image.convert("RGB"))


def decode(data: bytes, **options: Any) -> NDArray[np.uint8]:
    pixels = decode_image(data, key="a/b.jpg", policy=DecodePolicy(**options))
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable
    return pixels


def refusal(data: bytes, **options: Any) -> str:
    with pytest.raises(SampleError) as caught:
        decode_image(data, key="a/b.jpg", policy=DecodePolicy(**options))
    assert caught.value.key == "a/b.jpg"
    assert "\n" not in caught.value.reason
    return caught.value.reason


@pytest.mark.parametrize("progressive", [True, False])
def test_a_jpeg_with_endless_scans_is_refused_before_it_is_decoded(progressive: bool) -> None:
    data = encode(photo(), "JPEG", progressive=True)
    first, second = (data.index(b"\xff\xda", at) for at in (0, data.index(b"\xff\xda") + 2))
    scan = data[first:second]
    data = data[:first] + scan * 501 + data[second:]
    if not progressive:  # the scan of one component tells that there are more
        data = data.replace(b"\xff\xc2", b"\xff\xc0").replace(scan, b"\xff\xda\0\x08\1\1\0\0\x3f\0")
    assert "scans, more than 500" in refusal(data)
    comment = b"\xff\xfe\0\4\xff\xd9"  # no end of the picture
    for place in (first, data.index(b"\xff\xda", first + 2)):
        assert "scans, more than 500" in refusal(data[:place] + comment + data[place:])


def test_what_follows_a_jpeg_has_no_scans_of_it() -> None:
    data = encode(photo(), "JPEG", progressive=True)
    mark = data.index(b"\xff\xda")
    comment = b"\xff\xfe\x07\xd2" + b"\xff\xda" * 1_000
    film = decode(data[:mark] + comment + data[mark:] + b"\xff\xda" * 1_000)
    assert np.array_equal(film, decode(data))


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    header: tuple[int, int, int, int], rows: bytes, *between: bytes, interlaced: int = 0
) -> bytes:
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            png_chunk(b"IHDR", struct.pack(">IIBBBBB", *header, 0, 0, interlaced)),
            *between,
            png_chunk(b"IDAT", zlib.compress(rows)),
            png_chunk(b"IEND", b""),
        ]
    )


ENCODERS: dict[str, Callable[[], bytes]] = {
    "baseline JPEG": lambda: encode(photo(), "JPEG", quality=90),
    "JPEG 4:4:4": lambda: encode(photo(), "JPEG", subsampling=0),
    "JPEG 4:2:2": lambda: encode(photo(), "JPEG", subsampling=1),
    "progressive JPEG": lambda: encode(photo(), "JPEG", progressive=True),
    "JPEG with restarts": lambda: encode(photo(), "JPEG", restart_marker_rows=1),
    "RGB JPEG": lambda: encode(photo(), "JPEG", keep_rgb=True),
    "grey JPEG": lambda: encode(Image.fromarray(photo()).convert("L"), "JPEG"),
    "CMYK JPEG": lambda: encode(Image.fromarray(photo()).convert("CMYK"), "JPEG"),
    "PNG": lambda: encode(photo(), "PNG"),
    "grey PNG": lambda: encode(Image.fromarray(photo()).convert("L"), "PNG"),
    "palette PNG": lambda: encode(Image.fromarray(photo()).convert("P"), "PNG"),
    "bilevel PNG": lambda: encode(Image.fromarray(photo()).convert("1"), "PNG"),
    "lossy WebP": lambda: encode(photo(), "WEBP", quality=80),
    "lossless WebP": lambda: encode(photo(), "WEBP", lossless=True),
    "BMP": lambda: encode(photo(), "BMP"),
    "GIF": lambda: encode(photo(), "GIF"),
    "TIFF": lambda: encode(photo(), "TIFF"),
    "LZW TIFF": lambda: encode(photo(), "TIFF", compression="tiff_lzw"),
    "deflate TIFF": lambda: encode(photo(), "TIFF", compression="tiff_adobe_deflate"),
    "JPEG TIFF": lambda: encode(photo(), "TIFF", compression="jpeg"),
    "CMYK TIFF": lambda: encode(Image.fromarray(photo()).convert("CMYK"), "TIFF"),
    "AVIF": lambda: encode(photo(), "AVIF", quality=80),
    "JPEG 2000": lambda: encode(photo(), "JPEG2000"),
    "JPEG 2000 codestream": lambda: encode(photo(), "JPEG2000", no_jp2=True),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_every_kind_decodes_as_pillow_decodes_it(name: str) -> None:
    data = ENCODERS[name]()
    np.testing.assert_array_equal(decode(data), by_pillow(data))


def test_a_grey_jpeg_has_three_equal_channels() -> None:
    pixels = decode(ENCODERS["grey JPEG"]())
    assert (pixels[..., 0] == pixels[..., 1]).all()
    assert (pixels[..., 1] == pixels[..., 2]).all()


def _cuts(data: bytes) -> list[int]:
    even = np.linspace(1, len(data) - 1, 60).astype(int).tolist()
    return sorted({*even, *range(len(data) - 14, len(data)), *range(1, 40)})


@pytest.mark.parametrize("name", ENCODERS)
def test_a_cut_file_is_refused_or_gives_the_very_picture(name: str) -> None:
    data = ENCODERS[name]()
    whole = decode(data)
    for cut in _cuts(data):
        try:
            pixels = decode_image(data[:cut], key="cut")
        except SampleError:
            continue
        np.testing.assert_array_equal(pixels, whole, err_msg=f"cut at {cut} of {len(data)}")
        assert cut > len(data) - 1024


@pytest.mark.parametrize("name", [n for n in ENCODERS if "JPEG" in n or "PNG" in n or "WebP" in n])
def test_a_jpeg_png_or_webp_cut_in_its_first_nine_tenths_is_refused(name: str) -> None:
    data = ENCODERS[name]()
    for cut in np.linspace(0, 0.9 * len(data), 40).astype(int).tolist():
        assert refusal(data[:cut])


def exif_block(orientation: int, order: str = "<") -> bytes:
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return mark + struct.pack(order + "IH", 8, 1) + entry + struct.pack(order + "I", 0)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_exif_orientation_is_applied_in_every_format(kind: str, orientation: int) -> None:
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    if kind == "TIFF":
        options["tiffinfo"] = {274: orientation}
    else:
        options["exif"] = b"Exif\0\0" + exif_block(orientation)
    data = encode(photo(), kind, **options)
    np.testing.assert_array_equal(decode(data), by_pillow(data))
    assert decode(data).shape[:2] == ((47, 61) if orientation < 5 else (61, 47))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_picture_comes_out_as_the_upright_one(orientation: int) -> None:
    upright = photo()
    undo = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).swapaxes(0, 1),
        8: np.rot90(upright, -1),
    }
    stored = np.ascontiguousarray(undo[orientation])
    data = encode(stored, "PNG", exif=exif_block(orientation, ">"))
    np.testing.assert_array_equal(decode(data), upright)


@pytest.mark.parametrize("form", ['tiff:Orientation="6"', "<tiff:Orientation>6</tiff:Orientation>"])
@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "PNG", "AVIF"])
def test_xmp_orientation_is_applied(kind: str, form: str) -> None:
    xmp = f"<x:xmpmeta>{form}</x:xmpmeta>"
    if kind == "PNG":
        from PIL import PngImagePlugin

        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", xmp, zip=True)
        data = encode(photo(), "PNG", pnginfo=info)
    else:
        data = encode(photo(), kind, xmp=xmp.encode())
    np.testing.assert_array_equal(decode(data), by_pillow(data))
    assert decode(data).shape[:2] == (61, 47)


def test_exif_orientation_wins_over_xmp() -> None:
    data = encode(
        photo(), "JPEG", exif=b"Exif\0\0" + exif_block(1), xmp=b'<a tiff:Orientation="6"/>'
    )
    assert decode(data).shape[:2] == (47, 61)


def test_an_imagemagick_exif_profile_in_a_png_is_applied() -> None:
    block = (b"Exif\0\0" + exif_block(8)).hex()
    text = f"\nexif\n{len(block) // 2:8}\n{block}\n".encode()
    chunk = png_chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(text))
    plain = encode(photo(), "PNG")
    data = plain[:33] + chunk + plain[33:]
    np.testing.assert_array_equal(decode(data), by_pillow(data))
    assert decode(data).shape[:2] == (61, 47)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"II*\0",
        b"nonsense" * 4,
        b"II*\0\xff\xff\xff\xff",
        exif_block(6)[:15],
        exif_block(0),
        exif_block(9),
        b"MM\0*" + struct.pack(">IHHHI", 8, 60000, 0x0112, 2, 4) + b"abcd",
    ],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_broken_exif_does_not_cost_a_good_picture(kind: str, block: bytes) -> None:
    plain = encode(photo(), kind)
    if kind == "JPEG":
        body = b"Exif\0\0" + block
        data = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + plain[2:]
    elif kind == "PNG":
        data = plain[:33] + png_chunk(b"eXIf", block) + plain[33:]
    else:
        padded = block + b"\0" * (len(block) % 2)
        chunk = b"EXIF" + struct.pack("<I", len(block)) + padded
        data = plain[:4] + struct.pack("<I", len(plain) - 8 + len(chunk)) + plain[8:] + chunk
    np.testing.assert_array_equal(decode(data), decode(plain))


@pytest.mark.parametrize("background", [WHITE, (0, 0, 0), (10, 200, 77)])
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "AVIF"])
def test_alpha_is_composited_over_the_background(
    kind: str, background: tuple[int, int, int]
) -> None:
    alpha = np.linspace(0, 255, 47 * 61).astype(np.uint8).reshape(47, 61, 1)
    rgba = np.concatenate([photo(), alpha], 2)
    options: dict[str, Any] = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    data = encode(rgba, kind, **options)
    pixels = decode(data, background=background).astype(int)
    assert np.abs(pixels - by_pillow(data, background)).max() <= 1
    if kind != "AVIF":
        want = (photo() * (alpha / 255.0)) + np.array(background) * (1 - alpha / 255.0)
        assert np.abs(pixels - want).max() <= 1.01


def test_a_transparent_palette_entry_shows_the_background() -> None:
    image = Image.new("P", (4, 3), 1)
    image.putpalette([9, 9, 9, 50, 60, 70])
    image.putpixel((2, 1), 0)
    for kind in ("PNG", "GIF"):
        pixels = decode(encode(image, kind, transparency=0), background=(1, 2, 3))
        assert pixels[1, 2].tolist() == [1, 2, 3]
        assert pixels[0, 0].tolist() == [50, 60, 70]


@pytest.mark.parametrize(("depth", "row"), [(1, b"\0\x50"), (2, b"\0\xcc"), (4, b"\0\xf0\xf0")])
def test_the_transparent_grey_of_a_png_of_few_bits_is_found(depth: int, row: bytes) -> None:
    top = 2**depth - 1
    data = png((4, 1, depth, 0), row, png_chunk(b"tRNS", struct.pack(">H", top)))
    seen = decode(data, background=(5, 6, 7))[0]
    stored = decode(png((4, 1, depth, 0), row))[0]
    for pixel, bare in zip(seen.tolist(), stored.tolist(), strict=True):
        assert pixel == ([5, 6, 7] if bare == [255, 255, 255] else bare)
    assert [5, 6, 7] in seen.tolist()


def test_16_bit_grey_is_scaled_and_rounded_not_clipped() -> None:
    values = np.array([[0, 128, 129, 257, 1000, 30000, 65406, 65407, 65535]], np.uint16)
    want = np.rint(values / 257).astype(np.uint8)
    for kind in ("PNG", "TIFF", "JPEG2000"):
        pixels = decode(encode(np.tile(values, (9, 1)), kind))
        for channel in range(3):
            np.testing.assert_array_equal(pixels[0, :, channel], want[0])


def test_16_bit_grey_with_a_transparent_value_shows_the_background_there() -> None:
    rows = b"\0" + struct.pack(">3H", 500, 501, 65535)
    data = png((3, 1, 16, 0), rows, png_chunk(b"tRNS", struct.pack(">H", 501)))
    assert decode(data, background=(7, 8, 9))[0].tolist() == [[2] * 3, [7, 8, 9], [255] * 3]


def test_16_bit_tiff_with_white_as_zero_is_inverted() -> None:
    data = encode(np.array([[0, 65535, 257 * 100]], np.uint16), "TIFF")
    entry = struct.pack("<HHI", 262, 3, 1)
    at = data.index(entry) + len(entry)
    assert data[at] == 1
    inverted = data[:at] + b"\0" + data[at + 1 :]
    assert decode(inverted)[0, :, 0].tolist() == [255, 0, 155]


@pytest.mark.parametrize(("dtype", "word"), [(np.int32, "integer"), (np.float32, "floating-point")])
def test_samples_of_32_bits_are_refused_by_name(dtype: type, word: str) -> None:
    assert word in refusal(encode(np.zeros((4, 5), dtype), "TIFF"))


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
def test_the_first_frame_is_taken(kind: str) -> None:
    frames = [Image.fromarray(photo(seed=s)) for s in range(3)]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    alone = encode(frames[0], kind, **options)
    difference = np.abs(decode(data).astype(int) - decode(alone)).mean()
    assert difference < (0 if kind in ("PNG", "WEBP", "TIFF") else 4) + 1e-9


def test_an_interlaced_png_decodes_as_the_plain_one() -> None:
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2)]
    rows = b""
    for top, left, down, across in [*passes, (1, 0, 2, 1)]:  # the seven passes of Adam7
        rows += b"".join(b"\0" + row.tobytes() for row in grey[top::down, left::across])
    data = png((8, 8, 8, 0), rows, interlaced=1)
    np.testing.assert_array_equal(decode(data)[..., 0], grey)


def test_a_png_with_a_wrong_checksum_is_refused() -> None:
    data = bytearray(encode(photo(), "PNG"))
    data[data.index(b"IDAT") + 30] ^= 1
    assert "IDAT" in refusal(bytes(data))


def test_text_that_inflates_to_much_does_not_cost_a_png() -> None:
    plain = encode(photo(), "PNG")
    bomb = zlib.compress(b"a" * 80_000_000)
    for name in (b"Comment", b"Raw profile type exif"):
        data = plain[:33] + png_chunk(b"zTXt", name + b"\0\0" + bomb) + plain[33:]
        np.testing.assert_array_equal(decode(data), photo())


def test_a_png_without_end_chunk_or_with_split_pixels_is_refused() -> None:
    plain = encode(photo(), "PNG")
    assert "IEND" in refusal(plain[:-12])
    packed = zlib.compress(b"\0\1\2\3" * 3)
    parts = [
        png_chunk(b"IDAT", packed[:6]),
        png_chunk(b"tEXt", b"a\0b"),
        png_chunk(b"IDAT", packed[6:]),
    ]
    head = png((3, 3, 8, 0), b"")[:33]
    assert "follow" in refusal(head + b"".join(parts) + png_chunk(b"IEND", b""))


def test_a_jpeg_that_libjpeg_only_warns_about_is_refused() -> None:
    data = bytearray(encode(photo(400, 300), "JPEG", restart_marker_rows=1))
    scan = data.index(b"\xff\xda")
    restarts = [
        i for i in range(scan, len(data) - 1) if data[i] == 0xFF and 0xD0 <= data[i + 1] <= 0xD7
    ]
    data[restarts[3] + 1] = 0xD0 | (data[restarts[3] + 1] + 3 & 7)
    assert by_pillow(bytes(data)).shape == (300, 400, 3)  # a laxer decoder says nothing
    assert "JPEG" in refusal(bytes(data))


def test_stray_bytes_after_a_metadata_segment_do_not_cost_a_jpeg() -> None:
    plain = encode(photo(), "JPEG")
    comment = b"\xff\xfe\0\4ab"
    data = plain[:20] + comment + b"\0\1" + plain[20:]
    np.testing.assert_array_equal(decode(data), decode(plain))


@pytest.mark.parametrize(
    ("process", "precision", "word"),
    [(0xC3, 8, "lossless"), (0xF7, 8, "JPEG-LS"), (0xC5, 8, "hierarchical"), (0xC1, 12, "12 bits")],
)
def test_kinds_of_jpeg_that_are_not_supported_are_named(
    process: int, precision: int, word: str
) -> None:
    data = bytearray(encode(photo(), "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 1], data[frame + 4] = process, precision
    assert word in refusal(bytes(data))


def relabelled(data: bytes, sampling: Sequence[tuple[int, int]]) -> bytes:
    """A JPEG with other sampling factors: the same picture where no block has a mean."""
    changed = bytearray(data)
    frame = data.index(b"\xff\xc2")
    for component, (across, down) in enumerate(sampling):
        changed[frame + 11 + 3 * component] = across << 4 | down
    return bytes(changed)


def without_means(width: int, height: int) -> NDArray[np.uint8]:
    """Colours of which all blocks of 16 x 16 pixels, and so those of halved ones, add up to grey.

    In a progressive JPEG all first coefficients are 0 then, in whatever order these lie.
    """
    corner = np.random.default_rng(0).integers(-90, 90, (height // 8, 4, width // 8, 4, 3))
    half = np.concatenate((corner, -corner), 1)
    block = np.concatenate((half, half[:, :, :, ::-1]), 3)
    return (128 + block.reshape(height, width, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    ("subsampling", "sampling"),
    [
        ("4:4:4", [(2, 1)] * 3), ("4:4:4", [(1, 2)] * 3), ("4:4:4", [(3, 1)] * 3),
        ("4:4:4", [(1, 3)] * 3), ("4:2:2", [(2, 2), (1, 2), (1, 2)]),
    ],
)  # fmt: skip
def test_damage_is_seen_in_a_jpeg_whose_sampling_is_written_another_way(
    subsampling: str, sampling: list[tuple[int, int]]
) -> None:
    usual = encode(without_means(96, 96), "JPEG", progressive=True, subsampling=subsampling)
    data = relabelled(usual, sampling)
    np.testing.assert_array_equal(decode(data), decode(usual))
    damaged = data[:-2] + bytes(16) + data[-2:]
    assert by_pillow(damaged).shape == (96, 96, 3)  # a laxer decoder says nothing
    assert "extraneous bytes" in refusal(damaged)


def test_jpeg_with_sampling_of_no_name_decodes_as_pillow_decodes_it() -> None:
    usual = encode(without_means(96, 96), "JPEG", progressive=True, subsampling=0)
    data = relabelled(usual, [(2, 1), (2, 1), (1, 1)])
    np.testing.assert_array_equal(decode(data), by_pillow(data))


def test_an_xyb_profile_is_refused_and_another_ignored() -> None:
    def profile(name: str) -> bytes:
        text = b"mluc" + bytes(24) + name.encode("utf-16-be")
        return bytes(128) + struct.pack(">I4sII", 1, b"desc", 144, len(text)) + text

    assert "XYB" in refusal(encode(photo(), "JPEG", icc_profile=profile("XYB_Per")))
    other = encode(photo(), "JPEG", icc_profile=profile("Display P3"))
    np.testing.assert_array_equal(decode(other), decode(encode(photo(), "JPEG")))


def test_the_number_of_pixels_is_checked_before_decoding() -> None:
    bomb = png((40_000, 30_000, 8, 2), b"\0" * 100)
    assert "1,200,000,000 pixels" in refusal(bomb)
    bmp = bytearray(encode(photo(), "BMP"))
    bmp[18:26] = struct.pack("<ii", 100_000, 100_000)
    jpeg = bytearray(encode(photo(), "JPEG"))
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = b"\xff\xff\xff\xff"
    for data in (bytes(bmp), bytes(jpeg)):
        assert f"{MAX_PIXELS:,}" in refusal(data)


@pytest.mark.parametrize("name", ENCODERS)
def test_the_callers_pixel_limit_holds_in_every_kind(name: str) -> None:
    data = ENCODERS[name]()
    assert "2,867 pixels" in refusal(data, max_pixels=2866)
    decode(data, max_pixels=2867)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"<!DOCTYPE html><html>", "an HTML page, not an image"),
        (b"hello", "not an image format that prep knows"),
        (b"\xff\xd8\x00\x10JFIF", "a JPEG that is damaged at its second marker"),
        (b"8BPS\0\1", "PSD images are not supported"),
    ],
)
def test_what_is_no_supported_image_is_refused_by_name(data: bytes, reason: str) -> None:
    assert refusal(data) == reason


def test_random_changes_give_a_picture_or_a_refusal_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    reasons = []
    for make in ENCODERS.values():
        data = make()
        for _ in range(15):
            bent = bytearray(data)
            for at in rng.integers(0, min(len(data), 400), 3):
                bent[at] = rng.integers(256)
            try:
                decode(bytes(bent), max_pixels=1_000_000)
            except SampleError as error:
                reasons.append(error.reason)
    assert reasons
    assert all(reasons)


def test_damage_in_a_webp_is_seen_though_metadata_follows_the_pixels() -> None:
    exif = Image.Exif()
    exif[0x0112] = 1
    exif[0x010E] = "x" * 400
    file = io.BytesIO()
    Image.fromarray(photo()).save(file, "WEBP", quality=80, exif=exif)
    whole = file.getvalue()
    assert decode_image(whole, key="whole").shape == (47, 61, 3)
    accepted = 0
    start, end = whole.index(b"VP8 ") + 30, whole.index(b"EXIF")
    for place in range(start, end, 7):
        flipped = bytearray(whole)
        flipped[place] ^= 16
        # The same pixels with nothing behind them.
        alone = (
            b"RIFF" + (end - start + 34).to_bytes(4, "little") + b"WEBP" + flipped[start - 30 : end]
        )
        try:
            found = decode_image(bytes(flipped), key="flipped")
        except SampleError:
            continue
        expected = Image.open(io.BytesIO(alone)).convert("RGB")
        assert np.array_equal(found, np.asarray(expected))
        accepted += 1
    assert accepted < (end - start) // 7


def test_the_transparent_colour_of_a_16_bit_png_is_compared_in_16_bits() -> None:
    samples = np.zeros((2, 2, 3), ">u2")
    samples[0, 0] = 100, 200, 50
    header = struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in samples)
    chunks = [
        (b"IHDR", header),
        (b"tRNS", bytes(6)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
    found = decode_image(png, key="keyed", policy=DecodePolicy(background=(9, 8, 7)))
    assert found[0, 0].tolist() == [0, 1, 0]
    assert found[1, 1].tolist() == [9, 8, 7]


@pytest.mark.parametrize("revision", [b"\0\0", b"\2\1", b"\xff\1"])
def test_a_jfif_revision_that_decoders_do_not_know_costs_no_good_picture(revision: bytes) -> None:
    file = io.BytesIO()
    Image.fromarray(photo()).save(file, "JPEG", quality=90)
    whole = file.getvalue()
    place = whole.index(b"JFIF\0") + 5
    odd = whole[:place] + revision + whole[place + 2 :]
    assert np.array_equal(decode_image(odd, key="odd"), decode_image(whole, key="whole"))


def test_parts_of_a_colour_profile_that_do_not_fit_cost_no_good_picture() -> None:
    file = io.BytesIO()
    Image.fromarray(photo()).save(file, "JPEG", quality=90, icc_profile=b"p" * 200)
    whole = file.getvalue()
    place = whole.index(b"ICC_PROFILE\0") + 12
    odd = whole[:place] + b"\7\3" + whole[place + 2 :]
    assert np.array_equal(decode_image(odd, key="odd"), decode_image(whole, key="whole"))


def test_an_exif_chunk_of_a_png_that_is_damaged_turns_nothing() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.fromarray(photo()).save(file, "PNG", exif=exif)
    whole = bytearray(file.getvalue())
    assert decode_image(bytes(whole), key="whole").shape == (61, 47, 3)
    whole[whole.index(b"eXIf") + 8] ^= 1
    assert decode_image(bytes(whole), key="damaged").shape == (47, 61, 3)


def test_an_avif_of_too_many_pixels_is_refused_for_that() -> None:
    file = io.BytesIO()
    Image.fromarray(photo()).save(file, "AVIF")
    bomb = file.getvalue()
    place = bomb.index(b"ispe") + 8
    bomb = bomb[:place] + struct.pack(">II", 17000, 17000) + bomb[place + 8 :]
    with pytest.raises(SampleError, match="17000 x 17000 is 289,000,000 pixels, more than"):
        decode_image(bomb, key="bomb")


@pytest.mark.parametrize(("kind", "count", "turned"), [(3, 1, 6), (8, 1, 6), (9, 1, 6), (3, 2, 6)])
def test_every_integer_type_of_the_orientation_tag_is_read(
    kind: int, count: int, turned: int
) -> None:
    value = struct.pack(
        "<HH" if kind in (3, 8) else "<I", *([turned, 0] if kind in (3, 8) else [turned])
    )
    block = b"II*\0\x08\0\0\0" + struct.pack("<HHHI", 1, 0x0112, kind, count) + value + bytes(4)
    assert read_orientation(b"Exif\0\0" + block, None) == turned
    assert read_orientation(b"Exif\0\0" + block.replace(b"II*\0", b"II+\0"), None) == 1
