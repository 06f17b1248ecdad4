"""manifest.json: bytes -> manifest -> the same bytes, and nothing else is ever taken for one."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders.errors import FormatError, IncompleteError, VersionError
from loaders.format.fields import FieldSpec
from loaders.format.files import MANIFEST, WORK
from loaders.format.spec import (
    FORMAT_VERSION,
    Manifest,
    read_manifest,
)
from tests.strategies import manifests

quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a JSON value, but not those of free form."""
    found = [above] if above else []
    if above == ("recipe",):
        return found
    members = dict(enumerate(value)) if isinstance(value, list) else value
    for key, member in members.items() if isinstance(members, dict) else ():
        found += places(member, (*above, key))
    return found


def parent_of(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        value = value[key]
    return value


@quick
@given(manifest=manifests())
def test_a_manifest_survives_its_bytes(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(manifest.to_bytes())

    found = read_manifest(tmp_path)

    assert found == manifest
    assert found.to_bytes() == manifest.to_bytes()


@quick
@given(manifest=manifests(), data=st.data())
def test_a_value_of_another_type_is_refused(manifest: Manifest, data: st.DataObject) -> None:
    value = json.loads(manifest.to_bytes())
    place = data.draw(st.sampled_from(places(value)))
    parent = parent_of(value, place)
    old = parent[place[-1]]
    others = [True, 1.5, 10**30, -1, "x" * 9, [None], {"unknown": 1}, float("nan"), float("inf")]
    new = data.draw(st.sampled_from([other for other in others if type(other) is not type(old)]))
    parent[place[-1]] = new
    if place[0] in {"kind", "classes"} and isinstance(new, str):
        return
    if isinstance(new, dict) and place == ("recipe",):
        return

    with pytest.raises(FormatError):
        Manifest.from_json(value, "here")


@quick
@given(manifest=manifests(), data=st.data())
def test_a_number_that_is_huge_or_negative_is_refused(
    manifest: Manifest, data: st.DataObject
) -> None:
    value = json.loads(manifest.to_bytes())
    numbers = [p for p in places(value) if type(parent_of(value, p)[p[-1]]) in {int, float}]
    place = data.draw(st.sampled_from(numbers))
    parent_of(value, place)[place[-1]] = data.draw(st.sampled_from([-1, 10**300, 10**4000]))

    with pytest.raises(FormatError):
        Manifest.from_json(value, "here")


@quick
@given(manifest=manifests(), data=st.data())
def test_a_key_dropped_or_added_is_refused(manifest: Manifest, data: st.DataObject) -> None:
    value = json.loads(manifest.to_bytes())
    free = {("recipe",), ("splits",), ("extras",)}
    free |= {("splits", name, "tallies") for name in value["splits"]}
    objects = [p for p in places(value) if isinstance(parent_of(value, p)[p[-1]], dict)]
    place = data.draw(st.sampled_from([(), *(p for p in objects if p not in free)]))
    changed = value if not place else parent_of(value, place)[place[-1]]
    dropped = deepcopy(value)
    target = dropped if not place else parent_of(dropped, place)[place[-1]]
    changed["another"] = 1

    with pytest.raises(FormatError):
        Manifest.from_json(value, "here")
    if target:
        del target[data.draw(st.sampled_from(sorted(target)))]
        with pytest.raises(FormatError):
            Manifest.from_json(dropped, "here")


@quick
@given(manifest=manifests(), data=st.data())
def test_a_file_cut_short_is_refused(
    manifest: Manifest, data: st.DataObject, tmp_path: Path
) -> None:
    whole = manifest.to_bytes()
    # Without its last byte, a newline, it is still whole.
    (tmp_path / MANIFEST).write_bytes(whole[: data.draw(st.integers(0, len(whole) - 2))])

    with pytest.raises(FormatError, match="not valid JSON"):
        read_manifest(tmp_path)


@quick
@given(manifest=manifests(), data=st.data())
def test_a_flipped_bit_never_gives_another_manifest(
    manifest: Manifest, data: st.DataObject, tmp_path: Path
) -> None:
    flipped = bytearray(manifest.to_bytes())
    bit = data.draw(st.integers(0, 8 * len(flipped) - 1))
    flipped[bit // 8] ^= 1 << bit % 8
    (tmp_path / MANIFEST).write_bytes(flipped)

    try:
        found = read_manifest(tmp_path)
    except FormatError:
        return
    assert found == manifest  # a letter of an escape such as \u00e9, in the other case


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"1" * 5000,
        b'{"format":"prepshards","format":"prepshards"}',
        b'{"format":"prepshards"} {}',
        b'{"format":NaN}',
        b'{"format":1e999}',
        b'{"format":' + b"[" * 100 + b"]" * 100 + b"}",
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
    ],
)
def test_what_is_no_manifest_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(text)

    with pytest.raises(FormatError, match=r"manifest\.json: not"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("inner", ["NaN", "Infinity", "-Infinity", "1e999", "[" * 60 + "]" * 60])
def test_what_cannot_be_written_again_is_refused_in_the_recipe_too(
    inner: str, tmp_path: Path, small_manifest: Manifest
) -> None:
    whole = small_manifest.to_bytes().replace(b'"side":2', b'"side":' + inner.encode())
    assert whole != small_manifest.to_bytes()
    (tmp_path / MANIFEST).write_bytes(whole)

    with pytest.raises(FormatError, match="not valid JSON"):
        read_manifest(tmp_path)


@pytest.fixture
def small_manifest() -> Manifest:
    from tests.golden.regenerate import small_manifest

    return small_manifest()


def test_a_newer_version_is_named(small_manifest: Manifest) -> None:
    value = json.loads(small_manifest.to_bytes())
    value["format_version"] = FORMAT_VERSION + 1
    value["unknown to this version"] = 1

    with pytest.raises(VersionError, match="format version 6, this program reads up to 5"):
        Manifest.from_json(value, "here")


def test_an_image_field_without_sides_is_refused(small_manifest: Manifest) -> None:
    value = json.loads(small_manifest.to_bytes())
    value["splits"]["train"]["fields"][0]["shape"] = []

    with pytest.raises(FormatError, match="a shape and dtype for 'image'"):
        Manifest.from_json(value, "here")


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "role"),
    [
        ("Image", "uint8", (1, 1, 3), "image"),
        ("image", "float32", (1, 1, 3), "image"),
        ("image", "uint8", (0, 1, 3), "image"),
        ("image", "uint8", (3,), "image"),
        ("image", "uint8", (1 << 20, 1 << 20, 3), "image"),
        ("label", "uint8", (1,), "label"),
        ("key", "uint16", (8,), "key"),
        ("key", "uint8", (), "key"),
        ("tokens", "uint8", (8,), "tokens"),
        ("tokens", "uint64", (8,), "tokens"),
        ("metadata", "uint8", (8,), "metadata"),
        ("ends", "uint32", (), "offsets"),
        ("../up", "uint8", (8,), "key"),
    ],
)
def test_a_field_outside_the_format_cannot_be_made(
    name: str, dtype: str, shape: tuple[int, ...], role: Any
) -> None:
    with pytest.raises(FormatError, match=r"^field "):
        FieldSpec(name=name, dtype=dtype, shape=shape, role=role)


def test_folders_without_a_manifest_say_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="no such folder"):
        read_manifest(tmp_path / "nowhere")
    with pytest.raises(IncompleteError, match="not a dataset that prep wrote"):
        read_manifest(tmp_path)
    (tmp_path / WORK).mkdir()
    with pytest.raises(IncompleteError, match="the same prep command again"):
        read_manifest(tmp_path)


def test_a_folder_in_the_place_of_the_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).mkdir()

    with pytest.raises(FormatError, match="cannot be read: Is a directory"):
        read_manifest(tmp_path)
