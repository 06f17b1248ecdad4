"""The format's bytes do not change unnoticed."""

import json
from dataclasses import replace

from loaders.format.spec import Manifest, read_manifest
from tests.golden.regenerate import (
    DIGESTS_FILE,
    HERE,
    LISTS_FILE,
    MANIFEST_FILE,
    RECORDS_FILE,
    digests,
    list_files,
    record_files,
    small_manifest,
)


def test_a_manifest_has_the_bytes_it_always_had() -> None:
    assert small_manifest().to_bytes() == MANIFEST_FILE.read_bytes()


def test_the_golden_manifest_is_read_as_it_was_written() -> None:
    assert Manifest.from_json(json.loads(MANIFEST_FILE.read_bytes()), "golden") == small_manifest()


def test_a_manifest_of_version_1_is_read_as_it_was_meant() -> None:
    new = small_manifest()
    expected = replace(new, splits={"train": new.splits["train"]}, extras={})
    assert read_manifest(HERE / "version_1") == expected


def test_shards_have_the_bytes_they_always_had() -> None:
    assert digests() == json.loads(DIGESTS_FILE.read_text())


def test_records_have_the_bytes_they_always_had() -> None:
    assert record_files() == json.loads(RECORDS_FILE.read_text())


def test_lists_have_the_bytes_they_always_had() -> None:
    assert list_files() == json.loads(LISTS_FILE.read_text())
