"""Containers are told by content."""

import io
from collections.abc import Callable

import pytest
from PIL import Image  # noqa: TID253 - a test may load what it compares with

from preprocess.images.formats import (
    DECODED_FORMATS,
    HEAD_NBYTES,
    OTHER_IMAGE_FORMATS,
    PACKAGED_FORMATS,
    damaged_signature,
    explain_refusal,
    sniff_format,
)


@pytest.mark.parametrize("kind", sorted(DECODED_FORMATS))
def test_each_decoded_format_is_told_by_its_head(kind: str) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (9, 9)).save(buffer, kind)
    assert sniff_format(buffer.getvalue()[:HEAD_NBYTES]) == kind


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "damage",
    [lambda data: data[1:], lambda data: b"\r" + data, lambda data: b"\0\0" + data[2:]],
    ids=["a byte gone", "a byte more", "two zeros"],
)
def test_a_damaged_signature_is_told_from_no_picture(
    kind: str, damage: Callable[[bytes], bytes]
) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (9, 9)).save(buffer, kind)
    head = damage(buffer.getvalue())[:HEAD_NBYTES]
    assert sniff_format(head) is None
    assert damaged_signature(head) == kind
    assert explain_refusal(head) == f"a {kind} image whose signature is damaged"


@pytest.mark.parametrize(
    "text", [b"IHDR, JFIF and Exif\0\0 stand in headers", b"a JFIF\0", b"", b"\0" * 64]
)
def test_a_word_of_a_header_elsewhere_is_no_signature(text: bytes) -> None:
    assert damaged_signature(text) is None


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\0\0\0\x20ftypmif1\0\0\0\0mif1heic", "HEIC"),
        (b"\0\0\0\x20ftypmif1\0\0\0\0mif1avif", "AVIF"),
        (b"\xff\x0a\xfa\x1f", "JPEG XL"),
        (b"8BPS\0\1", "PSD"),
        (b"P6\n# made by hand\n3 2\n255\n", "PNM"),
        (b"P5 3 2 255 ", "PNM"),
        (b"PF\n3 2\n-1\n", "PFM"),
        (b"\0\0\1\0\1\0\x10\x10\0\0", "ICO"),
    ],
)
def test_other_image_formats_are_named(head: bytes, name: str) -> None:
    assert sniff_format(head) == name
    assert name in DECODED_FORMATS | PACKAGED_FORMATS | OTHER_IMAGE_FORMATS


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"\xef\xbb\xbf\n <html lang=en>", "HTML"),
        (b"<?xml version='1.0'?><svg>", "SVG"),
        (b"%PDF-1.7", "PDF"),
        (b"PK\x03\x04", "ZIP"),
        (b"\0\0\0\x14ftypisom\0\0\0\0mp41", "video"),
    ],
)
def test_what_is_no_picture_has_no_format_but_a_reason(head: bytes, word: str) -> None:
    assert sniff_format(head) is None
    assert word in explain_refusal(head)


@pytest.mark.parametrize(
    "head", [b"", b"BMW is a car maker of long standing", b"P1 is a podium place", b"\0\0\1\0"]
)
def test_text_that_begins_like_an_image_is_none(head: bytes) -> None:
    assert sniff_format(head) is None


def test_every_magic_name_is_listed() -> None:
    from preprocess.images import formats

    named = {name for _, _, name in formats._MAGIC}
    assert named <= DECODED_FORMATS | PACKAGED_FORMATS | OTHER_IMAGE_FORMATS
