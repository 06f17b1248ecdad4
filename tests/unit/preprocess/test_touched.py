"""A source whose times are others: known by what its files hold, refused by name if that is other.

Copied without its times, cloned, restored: the same command, `--append` and `prep repair`.
"""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from loaders.format.promised import promised_files
from loaders.format.spec import read_manifest
from preprocess.errors import SourceError
from preprocess.repair import repair_dataset
from tests.contents import assert_contents, recorded_items, rewritten, write_as_it_was
from tests.recipes import read_tree
from tests.small_datasets import KINDS, asked_for, damage, prepare, write_source
from tests.token_commands import call

NOTE = "written to since, with the same content as before: "

GROWING = ("images", "ragged images", "encoded images", "tokens")
"""Kinds of which some can be appended to."""


def touch(*folders: Path) -> None:
    """Give all files in some folders the time of now."""
    for folder in folders:
        for path in folder.rglob("*"):
            os.utime(path)


def again(kind: str, source: Path, *more: str) -> tuple[int, str]:
    """Give the command of a dataset once more; return its exit code and what it says."""
    command, *words = asked_for(kind, "tensor", source)
    result = call(command, source, source.parent / "out", *words, *more)
    return result.exit_code, result.output


def first_file(source: Path) -> Path:
    """Return the first file of a source that is an item of it."""
    return next(path for path in sorted(source.rglob("*")) if path.is_file())


def is_good(path: Path) -> bool:
    """Return whether a path is a file that becomes samples."""
    return path.is_file() and "broken" not in path.name


def flip(path: Path) -> None:
    """Change one byte of a file near its end, and its time of change."""
    data = path.read_bytes()
    at = len(data) - 3
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_command_knows_a_source_that_was_copied_without_its_times(
    kind: str, tmp_path: Path
) -> None:
    source = write_source(kind, tmp_path)
    prepare(kind, "tensor", source, tmp_path / "out")
    before = read_tree(tmp_path)

    touch(source, tmp_path / "masks")

    for _ in range(2):
        code, said = again(kind, source)
        assert code == 0, said
        assert "nothing to do" in said
        assert NOTE in said
    assert read_tree(tmp_path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_command_refuses_by_name_a_file_that_holds_something_else(
    kind: str, tmp_path: Path
) -> None:
    source = write_source(kind, tmp_path)
    prepare(kind, "tensor", source, tmp_path / "out")
    touch(source)
    changed = first_file(source)
    flip(changed)
    before = read_tree(tmp_path)

    code, said = again(kind, source)

    name = changed.relative_to(source)
    assert code == 1
    assert f"holds a dataset made from other input: {name} has other content; give another" in said
    assert read_tree(tmp_path) == before


@pytest.mark.parametrize("kind", GROWING)
def test_a_touched_source_grows_and_its_new_times_are_recorded(kind: str, tmp_path: Path) -> None:
    source = write_source(kind, tmp_path)
    last = sorted(path for path in source.rglob("*") if is_good(path))[-1]
    kept = last.read_bytes()
    last.unlink()
    prepare(kind, "tensor", source, tmp_path / "out")
    last.write_bytes(kept)
    touch(source, tmp_path / "masks")

    code, said = again(kind, source, "--append")

    assert code == 0, said
    assert NOTE in said
    found = assert_contents(tmp_path / "out", source, tmp_path / "masks")
    times = {item.key: item.times[0] for item in found}
    assert times == {key: (source / key).stat().st_mtime_ns for key in times}
    assert last.relative_to(source).as_posix() in times
    for words in ([], ["--append"]):
        code, said = again(kind, source, *words)
        assert (code, NOTE in said) == (0, False), said

    touch(source, tmp_path / "masks")  # now it was made by two runs
    for words in ([], ["--append"]):
        code, said = again(kind, source, *words)
        assert (code, NOTE in said) == (0, True), said
    flip(first_file(source))
    for words in ([], ["--append"]):
        code, said = again(kind, source, *words)
        assert (code, "has other content" in said) == (1, True), said


def test_only_files_whose_times_are_others_are_read(tmp_path: Path) -> None:
    source = write_source("encoded images", tmp_path)
    prepare("encoded images", "tensor", source, tmp_path / "out")
    mask = tmp_path / "masks/07.png"
    os.utime(mask)
    photo = source / "03.png"
    time, data = photo.stat().st_mtime_ns, photo.read_bytes()
    write_as_it_was(photo, data[::-1], time)  # nobody can tell but by its bytes

    code, said = again("encoded images", source)

    assert (code, f"{NOTE}07.png" in said) == (0, True), said
    flip(mask)
    code, said = again("encoded images", source)
    assert code == 1
    assert "07.png: its mask 07.png has other content" in said


@pytest.mark.parametrize("words", [(), ("--append",)])
def test_without_checksums_a_touched_source_is_another(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    source = write_source("images", tmp_path)
    new = source / "train/ant/new.png"
    shutil.copy(first_file(source), tmp_path / "kept.png")
    prepare("images", "tensor", source, tmp_path / "out")
    rewritten(tmp_path / "out", lambda line: line[:-1])
    touched = first_file(source)
    time = touched.stat().st_mtime_ns
    os.utime(touched)
    if words:
        shutil.copy(tmp_path / "kept.png", new)

    code, said = again("images", source, *words)

    assert code == 1
    assert f"{touched.relative_to(source)} was written to since" in said
    os.utime(touched, ns=(time, time))
    code, said = again("images", source, *words)
    assert code == 0, said
    known = {bool(item.contents) for item in recorded_items(tmp_path / "out")}
    assert known == ({True, False} if words else {False})


@pytest.mark.parametrize("kind", KINDS)
def test_a_repair_takes_a_source_with_other_times_and_names_what_has_changed(
    kind: str, tmp_path: Path
) -> None:
    source, out = write_source(kind, tmp_path), tmp_path / "out"
    prepare(kind, "tensor", source, out)
    whole = read_tree(out)
    touch(source, tmp_path / "masks")
    bad = [file.path for file in promised_files(out, read_manifest(out)) if file.shard is not None]
    for path in bad:
        damage(path, random.Random(str(path)))

    assert call("repair", out, source).exit_code == 0
    assert read_tree(out) == whole

    for path in bad:
        path.unlink(missing_ok=True)
    damaged = read_tree(out)
    changed = next(path for path in sorted(source.rglob("*")) if is_good(path))
    time, data = changed.stat().st_mtime_ns, changed.read_bytes()
    at = next((data.index(word) for word in (b"dog", b"red") if word in data), len(data) // 2)
    write_as_it_was(changed, data[:at] + b"7" + data[at + 1 :], time)
    with pytest.raises(SourceError, match=rf"{changed.relative_to(source)} has other content"):
        repair_dataset(out, source)
    assert read_tree(out) == damaged


def test_a_repair_by_another_version_of_a_library_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from preprocess.images import recipe

    source, out = write_source("images", tmp_path), tmp_path / "out"
    prepare("images", "tensor", source, out)
    next(out.rglob("*image_24.npy")).unlink()
    fitted = recipe.fit_sizes

    def otherwise(*given: object, **options: object) -> list[object]:
        return [255 - image for image in fitted(*given, **options)]  # type: ignore[arg-type]

    monkeypatch.setattr(recipe, "fit_sizes", otherwise)
    said = "all files that it comes from hold what they held, so another version of a library reads"
    with pytest.raises(SourceError, match=rf"image_24.npy than .*{said}.* that report.json names"):
        repair_dataset(out, source)

    rewritten(out, lambda line: line[:-1])
    said = "an item was changed, or another version of a library reads it"
    with pytest.raises(SourceError, match=said):
        repair_dataset(out, source)
    assert json.loads((out / "report.json").read_bytes())["tools"]


@pytest.mark.parametrize("more", [(), ("--append",)])
def test_a_record_of_another_number_of_files_is_refused_by_name(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    source = write_source("images", tmp_path)
    prepare("images", "tensor", source, tmp_path / "out")
    rewritten(tmp_path / "out", lambda item: [*item[:2], item[2] * 2, *item[3:7], item[7] * 2])
    touch(source)
    code, said = again("images", source, *more)
    assert code == 1
    assert "has another number of files than items.jsonl says" in said
