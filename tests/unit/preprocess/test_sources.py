"""The listing of a folder: which files are items, in which order, split and class."""

import os
import shutil
import socket
import subprocess
import unicodedata
from collections.abc import Iterator
from io import FileIO
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from preprocess.cli import prep
from preprocess.errors import SampleError, SourceError
from preprocess.folders import LabelMode
from preprocess.item_files import read_item
from preprocess.items import Item, Listing, printable
from preprocess.sources import Wanted, list_folder
from tests.synthetic import write_image_tree

WANTED = Wanted(
    what="image",
    extensions=frozenset([".img"]),
    recognizes=lambda head: head.startswith(b"IMG"),
    head_nbytes=3,
)


def write(root: Path, *names: str | bytes, data: bytes = b"IMG") -> None:
    for name in names:
        path = Path(root, os.fsdecode(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def list_here(root: Path, labels: LabelMode = "auto", follow_links: bool = False) -> Listing:
    return list_folder(root, WANTED, labels=labels, follow_links=follow_links)


def keys(listing: Listing, split: str = "train") -> list[str]:
    return [item.key for item in listing.splits[split]]


def skipped(listing: Listing) -> dict[str, str]:
    return {error.key: error.reason for error in listing.skipped}


# ------------------------------------------------------------------------- which files are items


def test_items_come_in_the_order_of_the_bytes_of_their_paths(tmp_path: Path) -> None:
    names = ["a.img", "B.img", "10.img", "2.img", "é.img", "z/0.img", "a-b/0.img", "a/0.img"]
    write(tmp_path, *names, b"\xff.img")
    listing = list_here(tmp_path)
    found = [os.fsencode(key) for key in keys(listing)]
    assert found == sorted([*(name.encode() for name in names), b"\xff.img"])


@pytest.mark.parametrize(
    "name",
    [
        "n\newline.img",
        "-rf.img",
        "[x]*?.img",
        "with  two spaces .img",
        "x" * 251 + ".img",
        "UPPER.IMG",
        "no_ending",
        "wrong.txt",
        "\U0001f431\u200d\U0001f464.img",
        b"bad\xff\xfe.img",
        b"\xed\xa0\x80.img",
        "deep/er/and/deeper/still.img",
        "folder.img/inside.img",
    ],
)
def test_an_awkward_name_is_an_item_under_its_own_bytes(tmp_path: Path, name: str | bytes) -> None:
    write(tmp_path, name)
    (item,) = list_here(tmp_path, labels="none").splits["train"]
    assert os.fsencode(item.key) == os.fsencode(name)
    assert read_item(tmp_path, item) == b"IMG"


def test_composed_and_decomposed_names_are_two_items(tmp_path: Path) -> None:
    twins = [unicodedata.normalize(form, "é.img") for form in ("NFC", "NFD")]
    write(tmp_path, *twins)
    assert sorted(keys(list_here(tmp_path))) == sorted(twins)


def test_the_same_stem_in_other_folders_and_with_other_endings_is_another_item(
    tmp_path: Path,
) -> None:
    names = ["a/1.img", "a/1.png", "b/1.img"]
    write(tmp_path, *names)
    assert keys(list_here(tmp_path)) == names


def test_a_file_with_a_foreign_ending_is_taken_by_content(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "b")
    write(tmp_path, "notes.txt", "empty", data=b"")
    listing = list_here(tmp_path)
    assert keys(listing) == ["a.txt", "b"]
    assert listing.ignored == {"not an image (.txt)": 1, "not an image (no ending)": 1}


def test_a_file_with_the_right_ending_is_an_item_whatever_it_holds(tmp_path: Path) -> None:
    write(tmp_path, "empty.img", data=b"")
    write(tmp_path, "page.img", data=b"<!DOCTYPE html>")
    assert keys(list_here(tmp_path)) == ["empty.img", "page.img"]


def test_hidden_files_and_unfinished_downloads_are_ignored_and_counted(tmp_path: Path) -> None:
    write(tmp_path, "a.img", ".DS_Store", "._a.img", ".git/x.img", "b.img.part", "c.CRDOWNLOAD")
    listing = list_here(tmp_path)
    assert keys(listing) == ["a.img"]
    assert listing.ignored == {
        "hidden": 3,
        "unfinished download (.crdownload)": 1,
        "unfinished download (.part)": 1,
    }


def test_many_foreign_endings_are_counted_together(tmp_path: Path) -> None:
    write(tmp_path, "a.img")
    write(tmp_path, *(f"log.{number:03d}" for number in range(50)), data=b"text")
    ignored = list_here(tmp_path).ignored
    assert len(ignored) == 13
    assert sum(ignored.values()) == 50
    assert ignored["of other endings"] == 38


def test_special_files_are_named_and_never_opened(tmp_path: Path) -> None:
    write(tmp_path, "a.img")
    os.mkfifo(tmp_path / "pipe.img")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "plug.img"))
        listing = list_here(tmp_path)
    assert keys(listing) == ["a.img"]
    assert skipped(listing) == {
        "pipe.img": "not a regular file but a FIFO",
        "plug.img": "not a regular file but a socket",
    }
    assert listing.ignored == {"not a regular file but a FIFO": 1}


def test_links_are_skipped_by_name_unless_they_are_to_be_followed(tmp_path: Path) -> None:
    write(tmp_path, "real/a.img")
    (tmp_path / "file.img").symlink_to("real/a.img")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "broken.img").symlink_to("nowhere")
    (tmp_path / "itself.img").symlink_to("itself.img")
    listing = list_here(tmp_path)
    assert keys(listing) == ["real/a.img"]
    reasons = skipped(listing)
    assert list(reasons) == ["broken.img", "file.img", "folder", "itself.img"]
    assert "--follow-links" in reasons["file.img"]
    assert "--follow-links" in reasons["folder"]
    assert reasons["broken.img"].startswith("a symbolic link to nothing")
    followed = list_here(tmp_path, follow_links=True)
    assert keys(followed) == ["file.img", "folder/a.img", "real/a.img"]
    assert list(skipped(followed)) == ["broken.img", "itself.img"]


def test_a_loop_of_links_ends_and_gives_each_file_once(tmp_path: Path) -> None:
    write(tmp_path, "loop/a/real.img")
    (tmp_path / "loop/a/up").symlink_to("..")
    (tmp_path / "top").symlink_to(tmp_path)
    assert keys(list_here(tmp_path, follow_links=True)) == ["loop/a/real.img"]


def test_folders_may_nest_deeper_than_python_calls(tmp_path: Path) -> None:
    depth = 1200
    folder = str(tmp_path)
    for _ in range(depth):
        folder = f"{folder}/d"
        os.mkdir(folder)
    Path(folder, "a.img").write_bytes(b"IMG")
    try:
        assert keys(list_here(tmp_path)) == ["d/" * depth + "a.img"]
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_a_folder_below_that_cannot_be_listed_is_skipped_by_name(tmp_path: Path) -> None:
    write(tmp_path, "a.img")
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):  # the whole path is longer than the system takes
        os.mkdir("x" * 200, dir_fd=folder)
        below = os.open("x" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    try:
        listing = list_here(tmp_path)
    finally:
        subprocess.run(["rm", "-rf", tmp_path / ("x" * 200)], check=True)
    assert keys(listing) == ["a.img"]
    (reason,) = skipped(listing).values()
    assert reason == "a folder that cannot be listed: File name too long"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.write_bytes(b""), "not a folder"),
        (lambda path: path.mkdir(), "the folder is empty"),
        (lambda path: path.symlink_to(path), "cannot be listed: Too many levels"),
        (
            lambda path: write(path, "a.csv", data=b"1"),
            "no image among 1 file: 1 not an image (.csv)",
        ),
        (lambda path: write(path, ".x.img"), "no image among 1 file: 1 hidden"),
    ],
)
def test_a_source_without_items_is_refused_with_the_cause(tmp_path: Path, make, said: str) -> None:
    source = tmp_path / "source"
    make(source)
    with pytest.raises(SourceError) as caught:
        list_here(source)
    assert str(caught.value).startswith(f"{source}: {said}")


def test_a_source_of_links_alone_says_how_to_take_them(tmp_path: Path) -> None:
    write(tmp_path, "elsewhere/a.img")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/b.img").symlink_to("../elsewhere/a.img")
    with pytest.raises(SourceError, match=r"none of 1 images.*b\.img.*--follow-links"):
        list_here(tmp_path / "source")


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give up root's right to read everything, for one test in its own folder."""
    monkeypatch.chdir(tmp_path)
    write_image_tree(tmp_path / "images", ["a"], 1)
    # What the commands import must be there before: nobody may not read root's packages.
    assert CliRunner().invoke(prep, ["images", "images", "made", "--sizes", "8"]).exit_code == 0
    root = os.geteuid() == 0
    tmp_path.chmod(0o777)
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


def test_what_may_not_be_read_is_skipped_by_name(nobody: None) -> None:
    source = Path("photos")
    write(source, "a.img", "closed.img", "closed", "folder/b.img")
    for name in ("closed.img", "closed", "folder"):
        (source / name).chmod(0)
    listing = list_here(source)
    (source / "folder").chmod(0o755)
    assert keys(listing) == ["a.img", "closed.img"]
    assert skipped(listing) == {
        "closed": "cannot be read: Permission denied",
        "folder/": "a folder that cannot be listed: Permission denied",
    }
    with pytest.raises(SampleError, match=r"closed\.img: cannot be read: Permission denied"):
        read_item(source, listing.splits["train"][1])


def test_a_source_that_may_not_be_read_is_an_error_of_ours(nobody: None) -> None:
    source = Path("photos")
    write(source, "a.img")
    source.chmod(0)
    words = ["images", "photos", "out", "--sizes", "8"]
    result = CliRunner().invoke(prep, words)
    source.chmod(0o755)
    assert result.exit_code == 1
    assert result.stderr == "Error: photos: cannot be listed: Permission denied\n"


def test_an_output_that_may_not_be_written_is_an_error_in_a_dry_run_too(nobody: None) -> None:
    Path("closed").mkdir(mode=0o555)
    words = ["images", "images", "closed/out", "--sizes", "8"]
    for more in ([], ["--dry-run"]):
        result = CliRunner().invoke(prep, words + more)
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: closed/out: cannot write: ")


# ------------------------------------------------------------------------------ splits and classes


def test_class_folders_become_labels_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    write(tmp_path, "a/1.img", "B/1.img", "é/1.img", "z/deep/er.img", b"\xff/1.img")
    listing = list_here(tmp_path)
    assert listing.classes == ("B", "a", "z", "é", "\udcff")
    labels = {item.key.partition("/")[0]: item.label for item in listing.splits["train"]}
    assert [labels[name] for name in listing.classes] == [0, 1, 2, 3, 4]


def test_a_flat_folder_has_no_labels_and_needs_no_note(tmp_path: Path) -> None:
    write(tmp_path, "1.img", "2.img")
    listing = list_here(tmp_path)
    assert (listing.classes, listing.notes) == ((), ())
    assert {item.label for item in listing.splits["train"]} == {None}


def test_one_item_outside_class_folders_leaves_the_split_without_labels_and_is_named(
    tmp_path: Path,
) -> None:
    write(tmp_path, "a/1.img", "b/1.img", "stray.img")
    listing = list_here(tmp_path)
    assert listing.classes == ()
    assert listing.notes == (
        "train: no labels, since 1 of 3 items lie in no class folder (the first is stray.img)",
    )


def test_labels_may_be_insisted_on_or_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a/1.img", "b/1.img")
    assert list_here(tmp_path, labels="folders").classes == ("a", "b")
    assert list_here(tmp_path, labels="none").classes == ()
    write(tmp_path, "stray.img")
    with pytest.raises(SourceError, match=r"stray\.img lies in no class folder"):
        list_here(tmp_path, labels="folders")
    assert list_here(tmp_path, labels="none").notes == ()


@pytest.mark.parametrize("validation", ["val", "validation"])
def test_split_folders_become_splits_that_share_their_classes(
    tmp_path: Path, validation: str
) -> None:
    write(tmp_path, "train/a/1.img", "train/c/1.img", f"{validation}/b/1.img", "test/1.img")
    listing = list_here(tmp_path)
    assert list(listing.splits) == ["train", "validation", "test"]
    assert listing.classes == ("a", "b", "c")
    assert [item.label for item in listing.splits["train"]] == [0, 2]
    assert [item.label for item in listing.splits["validation"]] == [1]
    assert [item.label for item in listing.splits["test"]] == [None]


def test_val_and_validation_together_are_ambiguous(tmp_path: Path) -> None:
    write(tmp_path, "train/1.img", "val/1.img", "validation/1.img")
    with pytest.raises(SourceError, match="both val/ and validation/ are there; keep one"):
        list_here(tmp_path)


@pytest.mark.parametrize("stray", ["stray.img", "other/1.img", "train2/1.img"])
def test_items_beside_train_are_ambiguous(tmp_path: Path, stray: str) -> None:
    write(tmp_path, "train/1.img", "test/1.img", stray)
    with pytest.raises(SourceError) as caught:
        list_here(tmp_path)
    assert f"{stray} lies outside the split folders (test/, train/)" in str(caught.value)


def test_a_foreign_file_beside_train_does_no_harm(tmp_path: Path) -> None:
    write(tmp_path, "train/1.img", "test/1.img")
    write(tmp_path, "README.md", data=b"words")
    assert list(list_here(tmp_path).splits) == ["train", "test"]


def test_a_class_may_be_called_test_and_a_note_says_so(tmp_path: Path) -> None:
    write(tmp_path, "test/1.img", "other/1.img")
    listing = list_here(tmp_path)
    assert (list(listing.splits), listing.classes) == (["train"], ("other", "test"))
    assert listing.notes[0].startswith("test/: taken as a part of train, not as a split")


def test_folders_that_look_like_splits_and_are_none_are_noted(tmp_path: Path) -> None:
    write(tmp_path, "Train/1.img", "valid/1.img")
    (note,) = list_here(tmp_path).notes
    assert note.startswith("Train/, valid/: taken as a part of train")


# -------------------------------------------------------------------- limits, hashes and reading


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 9, 10, 11, 500])
def test_a_limit_takes_that_many_evenly_spaced_with_their_labels(
    tmp_path: Path, limit: int
) -> None:
    write(tmp_path, *(f"{name}/{i}.img" for name in "ab" for i in range(5)))
    whole = list_here(tmp_path)
    some = whole.limited(limit)
    assert some.count == min(limit, 10)
    assert some.classes == whole.classes
    positions = [whole.splits["train"].index(item) for item in some.splits["train"]]
    gaps = {b - a for a, b in pairwise(positions)}
    assert positions[0] == 0
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_a_limit_spreads_over_splits_and_leaves_out_empty_ones(tmp_path: Path) -> None:
    write(tmp_path, *(f"train/{i}.img" for i in range(8)), "test/0.img", "test/1.img")
    whole = list_here(tmp_path)
    assert {name: len(items) for name, items in whole.limited(5).splits.items()} == {
        "train": 4,
        "test": 1,
    }
    assert list(whole.limited(1).splits) == ["train"]


def test_the_fingerprint_follows_names_sizes_and_labels(tmp_path: Path) -> None:
    write(tmp_path, "a/1.img", "b/1.img", b"b/\xff.img")
    first = list_here(tmp_path)
    assert first.fingerprint() == list_here(tmp_path).fingerprint()
    assert first.fingerprint() != list_here(tmp_path, labels="none").fingerprint()
    write(tmp_path, "a/1.img", data=b"IMG+")
    assert first.fingerprint() != list_here(tmp_path).fingerprint()
    shutil.move(tmp_path / "a", tmp_path / "c")
    assert first.fingerprint() != list_here(tmp_path).fingerprint()


def test_an_item_that_changed_since_the_listing_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.img", "b.img", "c.img")
    a, b, c = list_here(tmp_path).splits["train"]
    write(tmp_path, "a.img", data=b"IMG, longer")
    (tmp_path / "b.img").unlink()
    (tmp_path / "c.img").unlink()
    os.mkfifo(tmp_path / "c.img")
    with pytest.raises(SampleError, match="changed while it was prepared: 11 bytes, listed with 3"):
        read_item(tmp_path, a)
    with pytest.raises(SampleError, match="No such file"):
        read_item(tmp_path, b)
    write(tmp_path, "b.img", data=b"IMH")
    os.utime(tmp_path / "b.img", ns=(b.mtime_ns, b.mtime_ns + 1))
    with pytest.raises(SampleError, match=r"b\.img: changed .*: it was written to since it was"):
        read_item(tmp_path, b)
    with pytest.raises(SampleError, match="not a regular file but a FIFO"):
        read_item(tmp_path, c)


def test_a_folder_in_place_of_an_item_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.img").mkdir()
    with pytest.raises(SampleError, match=r"a\.img: "):
        read_item(tmp_path, Item("a.img", 3, 0))


@pytest.mark.parametrize(
    ("key", "shown"),
    [("a/é.img", "a/é.img"), ("n\nl", "n\\nl"), ("\udcff", "\\udcff"), ("\x1b[31m", "\\x1b[31m")],
)
def test_a_key_is_printed_on_one_line_without_control_characters(key: str, shown: str) -> None:
    assert printable(key) == shown


def test_a_file_that_grows_is_read_no_further_than_it_was_listed(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"x" * 1_000)
    item = Item("a.jpg", 1_000, path.stat().st_mtime_ns)
    asked: list[int] = []

    class Growing(FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(size or 0)
            return b"x" * (size or 0)

    with pytest.MonkeyPatch.context() as patch:
        opened = lambda descriptor, *_, **__: Growing(descriptor)  # noqa: E731
        patch.setattr("preprocess.item_files.open", opened, raising=False)
        with pytest.raises(SampleError, match="1001 bytes, listed with 1000"):
            read_item(tmp_path, item)
    assert asked == [1_001]


def test_a_folder_that_may_be_written_and_not_read_takes_a_dataset(nobody: None) -> None:
    Path("box").mkdir(mode=0o333)
    words = ["images", "images", "box/out", "--sizes", "8", "--max-skipped", "9"]
    result = CliRunner().invoke(prep, words)
    assert result.exit_code == 0, result.stderr
