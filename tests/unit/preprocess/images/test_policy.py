"""What decoding makes of profiles, transparency, deep samples and pages."""

import io
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageCms  # noqa: TID253 - a test may load what it compares with

from loaders import open_dataset
from preprocess import ImageOptions, images_to_shards
from preprocess.errors import SampleError
from preprocess.images.decode import decode_image, decode_pictures
from preprocess.images.decoder_settings import decoder_settings
from preprocess.images.packages import read_jxl_header
from preprocess.images.policy import DecodePolicy
from tests.colour_profiles import linear_grey, red_and_blue_swapped, srgb, two_level_ink
from tests.tiffs_made import make_tiff

DEEP = DecodePolicy(depth=16)


@pytest.fixture(autouse=True)
def _prepared() -> Iterator[None]:
    with decoder_settings():
        yield


def photo(channels: int = 3) -> NDArray[np.uint8]:
    y, x = np.mgrid[0:40, 0:56]
    planes = [
        127 + 100 * np.sin(x / (9 + k) + k) * np.cos(y / (7 + 2 * k)) for k in range(channels)
    ]
    return np.stack(planes, 2).astype(np.uint8)


def deep_photo(channels: int) -> NDArray[np.uint16]:
    return np.random.default_rng(channels).integers(0, 1 << 16, (9, 7, channels), np.uint16)


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def deep_png(samples: NDArray[np.uint16], *extra: tuple[bytes, bytes]) -> bytes:
    height, width, channels = samples.shape
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def deep_tiff(samples: NDArray[np.uint16], orientation: int = 1, *, planar: bool = False) -> bytes:
    extra = 2 if samples.shape[2] == 4 else None
    return make_tiff(samples, extra=extra, orientation=orientation, planar=planar)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("alpha", [False, True])
def test_an_embedded_profile_is_converted_to_srgb(kind: str, alpha: bool) -> None:
    if alpha and kind == "JPEG":
        pytest.skip("has no alpha")
    icc = red_and_blue_swapped()
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    data = encode(Image.fromarray(photo(3 + alpha)), kind, icc_profile=icc, **options)
    keep = "keep" if alpha else "over"
    stored = decode_image(data, key="k", policy=DecodePolicy(icc="ignore", alpha=keep))
    (found,) = decode_pictures(data, key="k", policy=DecodePolicy(alpha=keep))
    reference = ImageCms.profileToProfile(
        Image.fromarray(np.ascontiguousarray(stored[:, :, :3])),
        ImageCms.ImageCmsProfile(io.BytesIO(icc)),
        ImageCms.createProfile("sRGB"),
    )
    assert found.profiled == "converted"
    np.testing.assert_array_equal(found.pixels[:, :, :3], np.asarray(reference))
    assert np.abs(found.pixels[:, :, 2].astype(int) - stored[:, :, 0]).max() <= 2
    if alpha:
        np.testing.assert_array_equal(found.pixels[:, :, 3], stored[:, :, 3])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_the_profile_of_srgb_changes_no_byte(kind: str) -> None:
    data = encode(Image.fromarray(photo()), kind, icc_profile=srgb())
    (found,) = decode_pictures(data, key="k")
    assert found.profiled == "srgb"
    plain = decode_image(data, key="k", policy=DecodePolicy(icc="ignore"))
    np.testing.assert_array_equal(found.pixels, plain)


@pytest.mark.parametrize("icc", [b"nonsense" * 30, srgb()[:400], linear_grey(), two_level_ink()])
def test_a_profile_that_is_broken_or_of_other_colours_leaves_them_and_is_counted(
    icc: bytes,
) -> None:
    data = encode(Image.fromarray(photo()), "JPEG", icc_profile=icc)
    (found,) = decode_pictures(data, key="k")
    assert found.profiled == "unusable"
    np.testing.assert_array_equal(
        found.pixels, decode_image(data, key="k", policy=DecodePolicy(icc="ignore"))
    )


@pytest.mark.parametrize("damage", ["flipped", "checksum", "cut"])
def test_a_profile_of_a_png_that_is_damaged_is_left_and_counted(damage: str) -> None:
    swapped = red_and_blue_swapped()
    body = b"icc\0\0" + zlib.compress(swapped)
    if damage == "flipped":
        body = body[:90] + bytes([body[90] ^ 1]) + body[91:]
    elif damage == "cut":
        body = b"icc\0\0" + zlib.compress(swapped)[:-9]
    chunk = struct.pack(">I", len(body)) + b"iCCP" + body
    sum_ = zlib.crc32(chunk[4:]) ^ (damage == "checksum")
    plain = encode(Image.fromarray(photo()), "PNG")
    (found,) = decode_pictures(plain[:33] + chunk + struct.pack(">I", sum_) + plain[33:], key="k")
    assert found.profiled == "unusable"
    np.testing.assert_array_equal(found.pixels, photo())


def test_a_page_has_no_profile_of_another_page() -> None:
    first, other = Image.fromarray(photo()), Image.new("RGB", (9, 9), (200, 30, 90))
    data = encode(
        first, "TIFF", save_all=True, append_images=[other], icc_profile=red_and_blue_swapped()
    )
    # The second page's tag of the profile becomes a private one.
    last = data.rindex(struct.pack("<HH", 34675, 7))
    data = data[:last] + struct.pack("<H", 65000) + data[last + 2 :]
    pages = decode_pictures(data, key="k", policy=DecodePolicy(pages="all"))
    assert [page.profiled for page in pages] == ["converted", "none"]


def test_a_profile_in_several_parts_is_put_together_by_their_numbers() -> None:
    icc = red_and_blue_swapped()
    data = encode(Image.fromarray(photo()), "JPEG", icc_profile=icc)
    half = len(icc) // 2
    parts = [(2, icc[half:]), (1, icc[:half])]
    bodies = [b"ICC_PROFILE\0" + bytes([number, 2]) + part for number, part in parts]
    segments = b"".join(b"\xff\xe2" + struct.pack(">H", len(b) + 2) + b for b in bodies)
    plain = encode(Image.fromarray(photo()), "JPEG")
    found = decode_image(plain[:2] + segments + plain[2:], key="k")
    np.testing.assert_array_equal(found, decode_image(data, key="k"))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_a_profile_of_grey_is_applied_to_grey(kind: str) -> None:
    grey = Image.fromarray(photo(1)[:, :, 0])
    data = encode(grey, kind, icc_profile=linear_grey())
    (found,) = decode_pictures(data, key="k")
    plain = decode_image(data, key="k", policy=DecodePolicy(icc="ignore"))
    light = plain[:, :, 0] / 255
    expected = 255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    assert found.profiled == "converted"
    for channel in range(3):
        assert np.abs(found.pixels[:, :, channel] - expected).max() <= 1.5


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_inks_are_converted_by_their_profile_or_plainly(kind: str) -> None:
    image = Image.fromarray(photo()).convert("CMYK")
    data = encode(image, kind, icc_profile=two_level_ink())
    (found,) = decode_pictures(data, key="k")
    reference = ImageCms.profileToProfile(
        Image.open(io.BytesIO(data)),
        ImageCms.ImageCmsProfile(io.BytesIO(two_level_ink())),
        ImageCms.createProfile("sRGB"),
        outputMode="RGB",
    )
    assert found.profiled == "converted"
    np.testing.assert_array_equal(found.pixels, np.asarray(reference))
    plain = decode_image(data, key="k", policy=DecodePolicy(icc="ignore"))
    np.testing.assert_array_equal(plain, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_alpha_is_kept_or_dropped_as_asked(kind: str) -> None:
    rgba = photo(4)
    options: dict[str, Any] = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    data = encode(Image.fromarray(rgba), kind, **options)
    kept = decode_image(data, key="k", policy=DecodePolicy(alpha="keep"))
    np.testing.assert_array_equal(kept, rgba)
    dropped = decode_image(data, key="k", policy=DecodePolicy(alpha="drop"))
    np.testing.assert_array_equal(dropped, rgba[:, :, :3])
    opaque = encode(Image.fromarray(rgba[:, :, :3]), kind, **options)
    kept = decode_image(opaque, key="k", policy=DecodePolicy(alpha="keep"))
    assert (kept[:, :, 3] == 255).all()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_16_bit_pngs_are_whole_at_16_bits_and_rounded_at_8(channels: int) -> None:
    samples = deep_photo(channels)
    keep = "keep" if channels in (2, 4) else "over"
    expected = samples if channels > 2 else samples[:, :, [0, 0, 0, 1][: channels + 2]]
    data = deep_png(samples)
    found = decode_image(data, key="k", policy=DecodePolicy(depth=16, alpha=keep))
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, expected)
    found = decode_image(data, key="k", policy=DecodePolicy(alpha=keep))
    np.testing.assert_array_equal(found, np.rint(expected / 257).astype(np.uint8))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("channels", [3, 4])
def test_16_bit_tiffs_of_colour_are_whole_and_upright(channels: int, orientation: int) -> None:
    samples = deep_photo(channels)
    turns = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
        8: np.rot90,
    }
    data = deep_tiff(samples, orientation)
    keep = "keep" if channels == 4 else "over"
    upright = turns[orientation](samples)
    found = decode_image(data, key="k", policy=DecodePolicy(depth=16, alpha=keep))
    np.testing.assert_array_equal(found, upright)
    found = decode_image(data, key="k", policy=DecodePolicy(alpha=keep))
    np.testing.assert_array_equal(found, np.rint(upright / 257).astype(np.uint8))


def test_16_bit_tiffs_of_a_plane_a_colour_are_refused_where_pillow_takes_them_for_8() -> None:
    samples = deep_photo(3)
    data = deep_tiff(samples, planar=True)
    for policy in (DecodePolicy(), DEEP):
        with pytest.raises(SampleError, match="16-bit samples lie uncompressed in a plane"):
            decode_image(data, key="k", policy=policy)


@pytest.mark.parametrize("values", [range(128), range(-128, 128)])
def test_a_signed_tiff_is_taken_if_no_sample_is_negative(values: range) -> None:
    samples = np.array([values], np.int8)
    data = encode(Image.fromarray(samples.view(np.uint8)), "TIFF", tiffinfo={339: 2})
    if min(values) < 0:
        with pytest.raises(SampleError, match="some of them are negative"):
            decode_image(data, key="k")
    else:
        assert decode_image(data, key="k")[0, :, 0].tolist() == list(values)


def test_16_bit_colours_with_alpha_are_composited_in_16_bits() -> None:
    samples = deep_photo(4)
    found = decode_image(deep_png(samples), key="k", policy=DEEP)
    alpha = samples[:, :, 3:] / 65535
    expected = samples[:, :, :3] * alpha + 65535 * (1 - alpha)
    assert np.abs(found - expected).max() <= 0.51


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF", "JPEG2000"])
def test_samples_of_8_bits_become_16_by_257(kind: str) -> None:
    data = encode(Image.fromarray(photo()), kind)
    found = decode_image(data, key="k", policy=DEEP)
    np.testing.assert_array_equal(found, decode_image(data, key="k").astype(np.uint16) * 257)


def test_16_bits_under_a_profile_that_changes_them_are_refused_by_name() -> None:
    icc = b"p\0\0" + zlib.compress(red_and_blue_swapped())
    data = deep_png(deep_photo(3), (b"iCCP", icc))
    with pytest.raises(SampleError, match="colour profile cannot be applied to 16-bit"):
        decode_image(data, key="k", policy=DEEP)
    ignored = decode_image(data, key="k", policy=DecodePolicy(depth=16, icc="ignore"))
    np.testing.assert_array_equal(ignored, deep_photo(3))
    same = deep_png(deep_photo(3), (b"iCCP", b"p\0\0" + zlib.compress(srgb())))
    np.testing.assert_array_equal(decode_image(same, key="k", policy=DEEP), deep_photo(3))


def deep_jpeg2000(samples: NDArray[Any], bits: int) -> bytes:
    """A lossless JPEG 2000 of so many bits, out of OpenCV, which writes 16 of them.

    Values are stored less half their range, so that those of fewer bits have another middle.
    """
    import cv2

    moved = (samples.astype(np.int64) + 2**15 - 2 ** (bits - 1)).astype(np.uint16)
    order = [2, 1, 0, 3][: samples.shape[2]] if samples.shape[2] > 1 else [0]
    whole = [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000]
    done, encoded = cv2.imencode(".jp2", np.ascontiguousarray(moved[:, :, order]), whole)
    assert done
    data = bytearray(encoded.tobytes())
    place = data.index(b"\xff\x4f\xff\x51") + 42
    for channel in range(samples.shape[2]):
        assert data[place + 3 * channel] == 15
        data[place + 3 * channel] = bits - 1
    data[data.index(b"ihdr") + 14] = bits - 1
    return bytes(data)


@pytest.mark.parametrize("channels", [1, 3, 4])
@settings(max_examples=16)
@given(bits=st.integers(9, 16), seed=st.integers(0, 99))
def test_deep_jpeg_2000_is_whole_at_16_bits_and_rounded_at_8(
    channels: int, bits: int, seed: int
) -> None:
    peak = 2**bits - 1
    samples = np.random.default_rng(seed).integers(0, peak + 1, (40, 36, channels))
    samples[:3] = peak  # white
    data = deep_jpeg2000(samples, bits)
    wanted = samples.repeat(3, 2) if channels == 1 else samples
    alpha: Any = "keep" if channels == 4 else "over"
    for levels, depth in ((255, 8), (65535, 16)):
        policy = DecodePolicy(depth=depth, alpha=alpha)  # type: ignore[arg-type]
        found = decode_image(data, key="k", policy=policy)
        np.testing.assert_array_equal(found, (wanted * levels + peak // 2) // peak)


def test_a_deep_jpeg_2000_that_no_decoder_reads_whole_is_refused() -> None:
    data = bytearray(encode(Image.fromarray(photo()).convert("LA"), "JPEG2000", no_jp2=True))
    place = data.index(b"\xff\x51") + 40
    data[place] = data[place + 3] = 11
    for depth in (8, 16):
        policy = DecodePolicy(depth=depth)  # type: ignore[arg-type]
        with pytest.raises(SampleError, match="JPEG2000: its samples of more than 8 bits"):
            decode_image(bytes(data), key="k", policy=policy)
    data[place] = 16
    with pytest.raises(SampleError, match="samples of 17 bits are not supported"):
        decode_image(bytes(data), key="k")


def pages_tiff(kinds: list[int]) -> bytes:
    """A TIFF of one page a kind (NewSubfileType), each of a colour of its own."""
    pages = [
        Image.new("RGB", (20 + number, 10), (number * 9, 7, 3)) for number in range(len(kinds))
    ]
    data = bytearray(encode(pages[0], "TIFF", save_all=True, append_images=pages[1:]))
    place = struct.unpack_from("<I", data, 4)[0]
    for kind in kinds:
        count = struct.unpack_from("<H", data, place)[0]
        entries = range(place + 2, place + 2 + 12 * count, 12)
        width = next(at for at in entries if struct.unpack_from("<H", data, at)[0] == 256)
        unused = next(at for at in entries if struct.unpack_from("<H", data, at)[0] in (254, 284))
        assert width >= place
        struct.pack_into("<HHII", data, unused, 254, 4, 1, kind)
        entry = [bytes(data[at : at + 12]) for at in entries]
        entry.sort(key=lambda item: struct.unpack("<H", item[:2])[0])
        data[place + 2 : place + 2 + 12 * count] = b"".join(entry)
        place = struct.unpack_from("<I", data, place + 2 + 12 * count)[0]
    return bytes(data)


def test_all_pages_of_a_tiff_are_samples_but_thumbnails_and_masks(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "a.tif").write_bytes(pages_tiff([0, 1, 2, 4, 0]))
    (photos / "b.png").write_bytes(encode(Image.new("RGB", (8, 8), (200, 0, 0)), "PNG"))
    options = ImageOptions(sizes=((8, 8),), pages="all")
    report = images_to_shards(photos, tmp_path / "out", options)
    assert not report.skipped
    ds = open_dataset(tmp_path / "out")
    assert [(s["key"], s["page"]) for s in (ds[i] for i in range(len(ds)))] == [
        ("a.tif", 0), ("a.tif", 2), ("a.tif", 4), ("b.png", 0),
    ]  # fmt: skip
    assert [int(ds[i]["image"][0, 0, 0]) for i in range(4)] == [0, 18, 36, 200]
    first = images_to_shards(photos, tmp_path / "first", ImageOptions(sizes=((8, 8),)))
    assert first.samples == {"train": 2}


def test_a_damaged_page_refuses_its_file_whole(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    whole = pages_tiff([0, 0, 0])
    (photos / "a.tif").write_bytes(whole[: len(whole) - 500])
    (photos / "b.tif").write_bytes(whole)
    options = ImageOptions(sizes=((8, 8),), pages="all")
    report = images_to_shards(photos, tmp_path / "out", options)
    assert [key for key, _ in report.skipped] == ["a.tif"]
    ds = open_dataset(tmp_path / "out")
    assert [ds[i]["key"] for i in range(len(ds))] == ["b.tif"] * 3


def test_the_policy_is_recorded_and_profiles_are_counted(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, icc in enumerate([srgb(), red_and_blue_swapped(), b"nonsense" * 30, b""]):
        image = Image.fromarray(photo())
        (photos / f"{number}.jpg").write_bytes(encode(image, "JPEG", icc_profile=icc))
    images_to_shards(photos, tmp_path / "out", ImageOptions(sizes=((8, 8),)))
    ds = open_dataset(tmp_path / "out")
    recorded = {name: ds.manifest.recipe[name] for name in ("icc", "alpha", "depth", "pages")}
    assert recorded == {"icc": "srgb", "alpha": "white", "depth": 8, "pages": "first"}
    tallies = {name: row[0] for name, row in ds.manifest.splits["train"].tallies.items()}
    assert tallies == {"icc_srgb": 1, "icc_converted": 1, "icc_unusable": 1}


def test_16_bits_and_alpha_reach_the_loader(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    samples = np.random.default_rng(0).integers(1, 1 << 16, (16, 16, 4), np.uint16)
    (photos / "a.png").write_bytes(deep_png(samples))
    options = ImageOptions(sizes=((16, 16),), depth=16, alpha="keep")
    images_to_shards(photos, tmp_path / "out", options)
    image = open_dataset(tmp_path / "out")[0]["image"]
    np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), samples)


@pytest.mark.parametrize(
    ("module", "head", "extra"),
    [
        ("pillow_heif", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "heic"),
        ("pillow_jxl", b"\xff\x0a\xfa\x1f" + bytes(40), "jxl"),
    ],
)
def test_a_format_whose_package_is_missing_is_refused_with_its_name(
    module: str, head: bytes, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SampleError, match=rf"pip install 'prepshards\[{extra}\]'"):
        decode_image(head, key="k")


def jxl_head(width: int, height: int, *, animated: bool) -> bytes:
    bits, count = 0, 0

    def put(value: int, length: int) -> None:
        nonlocal bits, count
        bits |= value << count
        count += length

    put(0, 1)
    put(3, 2)
    put(height - 1, 30)
    put(0, 3)
    put(3, 2)
    put(width - 1, 30)
    for flag in (0, 1):
        put(flag, 1)
    put(5, 3)
    for flag in (0, 0, animated):
        put(flag, 1)
    return b"\xff\x0a" + bits.to_bytes(46, "little")


@given(st.integers(1, 1 << 30), st.integers(1, 1 << 30), st.booleans(), st.booleans())
def test_the_size_of_a_jpeg_xl_is_read_before_it_is_decoded(
    width: int, height: int, animated: bool, boxed: bool
) -> None:
    data = jxl_head(width, height, animated=animated)
    if boxed:
        box = struct.pack(">I4s", 8 + len(data), b"jxlc") + data
        data = b"\0\0\0\x0cJXL \r\n\x87\n" + struct.pack(">I4s", 12, b"ftyp") + bytes(4) + box
    assert read_jxl_header(data) == (width, height, not animated)


def test_grey_and_rgba_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="alpha='keep'"):
        ImageOptions(sizes=((8, 8),), grayscale=True, alpha="keep")
