"""`--append`: what is new is added, what is other is refused by name, nothing else is touched."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image  # noqa: TID253 - a test may write what it reads

from loaders import open_dataset
from loaders.errors import ShardsError
from loaders.format.spec import read_manifest
from preprocess.cli import prep
from preprocess.output import hold
from tests.token_commands import stored, write_jsonl
from tests.tokenizers_made import make_bpe


def photo(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 20, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def mask(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((20, 20), value, np.uint8)).save(path)


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(prep, [str(word) for word in words])


def prepare(folder: Path, *words: str | Path) -> Result:
    return call("images", folder / "in", folder / "out", "--sizes", "8", *words)


def tree(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return which file stands where, and when it was written."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """Return a folder with a dataset of photos in two classes, to which there is one more photo."""
    for number in range(4):
        photo(tmp_path / f"in/{'ab'[number % 2]}/{number}.png", number)
    assert prepare(tmp_path).exit_code == 0
    photo(tmp_path / "in/a/8.png", 8)
    return tmp_path


def keys(folder: Path, split: str = "train") -> list[str]:
    ds = open_dataset(folder / "out", split=split, verify=True)
    return [ds[index]["key"] for index in range(len(ds))]


def assert_refused(
    result: Result, folder: Path, before: dict[Path, tuple[int, int]], *said: str
) -> None:
    """Check that a command ended with one line that says all this, and has touched nothing."""
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert result.stderr.count("\n") == 1
    assert [part for part in said if part not in result.stderr] == [], result.stderr
    assert tree(folder / "out") == before


def test_what_is_new_comes_after_what_was_there_and_then_there_is_nothing_to_do(
    grown: Path,
) -> None:
    before = tree(grown / "out")
    assert_refused(prepare(grown), grown, before, "a/8.png is new", "--append adds")
    reader = open_dataset(grown / "out")
    old = reader[0]["image"].numpy().copy()

    assert prepare(grown, "--append").exit_code == 0

    assert keys(grown) == ["a/0.png", "a/2.png", "b/1.png", "b/3.png", "a/8.png"]
    assert np.array_equal(reader[0]["image"].numpy(), old)
    assert len(reader) == 4
    shards = {path: at for path, at in before.items() if path.suffix == ".npy"}
    assert shards.items() <= tree(grown / "out").items()
    after = tree(grown / "out")
    for words in ([], ["--append"], ["--append", "--dry-run"]):
        again = prepare(grown, *words)
        assert (again.exit_code, again.stderr) == (0, "")
        if "--dry-run" not in words:
            assert again.stdout.startswith("nothing to do: 5 samples (train 5)")
            assert again.stdout.count("\n") == 1
    assert tree(grown / "out") == after


def test_other_options_are_refused_with_both_values(grown: Path) -> None:
    before = tree(grown / "out")
    for words, said in {
        ("--grayscale",): "--grayscale is not given there, given here",
        ("--filter", "box"): "--filter is bicubic there, box here",
        ("--no-upscale",): "--no-upscale is not given there, given here",
        ("--shard-size", "1MB"): "--shard-size is 256000000 there, 1000000 here",
        ("--format", "zarr"): "--format is tensor there, zarr here",
    }.items():
        assert_refused(prepare(grown, "--append", *words), grown, before, said, "--overwrite")
    assert_refused(prepare(grown, "--grayscale"), grown, before, "--grayscale is not given there")
    assert_refused(prepare(grown, "--limit", "1"), grown, before, "--limit is not set there, 1")


def test_files_that_are_gone_or_were_changed_are_refused_by_name(grown: Path) -> None:
    before = tree(grown / "out")
    first = grown / "in/a/0.png"
    status, whole = first.stat(), first.read_bytes()
    for words in ([], ["--append"]):
        first.unlink()
        assert_refused(prepare(grown, *words), grown, before, "a/0.png is gone")
        first.write_bytes(whole + b"x")
        size = f"a/0.png had {len(whole):,} bytes, has {len(whole) + 1:,} now"
        assert_refused(prepare(grown, *words), grown, before, size)
        first.write_bytes(whole)
    first.write_bytes(whole[:-1] + b"x")
    assert_refused(prepare(grown, "--append"), grown, before, "a/0.png has other content")
    first.write_bytes(whole)
    os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert prepare(grown, "--append").exit_code == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("c/1.png", "class 'c' is new"),
        ("c.png", "the first is c.png"),
        ("a/99.png", "names of train have up to 7 bytes there, 8 here, as a/99.png"),
    ],
)
def test_a_file_that_does_not_fit_in_is_refused_by_name(grown: Path, name: str, said: str) -> None:
    before = tree(grown / "out")
    photo(grown / "in" / name, 9)
    assert_refused(prepare(grown, "--append"), grown, before, said)


def test_room_for_longer_names_can_be_left(grown: Path) -> None:
    assert prepare(grown, "--overwrite", "--key-bytes", "20").exit_code == 0
    photo(grown / "in/a/much longer.png", 9)
    without = prepare(grown, "--append")
    assert_refused(without, grown, tree(grown / "out"), "--key-bytes is 20 there")
    assert prepare(grown, "--append", "--key-bytes", "20").exit_code == 0
    assert keys(grown)[-1] == "a/much longer.png"
    photo(grown / "in/a/much longer than all of that.png", 10)
    refused = prepare(grown, "--append", "--key-bytes", "20")
    assert "a/much longer than all of that.png: 34 bytes, --key-bytes is 20" in refused.stderr


def test_what_cannot_be_appended_to_says_why(grown: Path) -> None:
    for words, said in {
        ("--limit", "3"): "--limit takes other photos",
        ("--stratify", "--test", "0.5"): "--stratify added photos may move others",
    }.items():
        assert prepare(grown, "--overwrite", *words).exit_code == 0
        before = tree(grown / "out")
        assert_refused(prepare(grown, "--append", *words), grown, before, said)
    shutil.rmtree(grown / "out")
    refused = prepare(grown, "--append")
    assert (refused.exit_code, "no finished dataset to append to" in refused.stderr) == (1, True)
    assert prepare(grown, "--append", "--overwrite").exit_code == 2
    assert prepare(grown).exit_code == 0
    (grown / "out/items.jsonl").unlink()
    photo(grown / "in/a/9.png", 9)
    assert_refused(prepare(grown, "--append"), grown, tree(grown / "out"), "items.jsonl is missing")


def test_splits_by_hash_take_new_photos_and_a_folder_may_bring_a_new_split(tmp_path: Path) -> None:
    for number in range(30):
        photo(tmp_path / f"in/{number:03d}.png", number)
    words = ("--validation", "0.3", "--append")
    assert prepare(tmp_path, *words[:2]).exit_code == 0
    before = {split: keys(tmp_path, split) for split in ("train", "validation")}
    for number in range(30, 50):
        photo(tmp_path / f"in/{number:03d}.png", number)
    assert prepare(tmp_path, *words).exit_code == 0
    for split, old in before.items():
        assert keys(tmp_path, split)[: len(old)] == old
        assert len(keys(tmp_path, split)) > len(old)

    other = tmp_path / "other"
    photo(other / "in/train/0.png", 0)
    assert prepare(other).exit_code == 0
    photo(other / "in/test/1.png", 1)
    assert prepare(other, "--append").exit_code == 0
    assert (keys(other), keys(other, "test")) == (["train/0.png"], ["test/1.png"])


def test_a_copy_of_an_old_photo_in_another_split_is_found(tmp_path: Path) -> None:
    for name in ("train/0.png", "test/1.png"):
        photo(tmp_path / "in" / name, len(name))
    assert prepare(tmp_path).exit_code == 0
    shutil.copy2(tmp_path / "in/train/0.png", tmp_path / "in/test/2.png")
    before = tree(tmp_path / "out")
    refused = prepare(tmp_path, "--append")
    assert_refused(refused, tmp_path, before, "train/0.png (train) = test/2.png (test)")


def test_masks_metadata_and_boxes_come_along(tmp_path: Path) -> None:
    (tmp_path / "boxes").mkdir()
    (tmp_path / "boxes/classes.txt").write_text("x\ny\n")
    for n in range(5):
        photo(tmp_path / f"in/{n}.png", n)
        mask(tmp_path / f"masks/{n}.png", n)
        (tmp_path / f"boxes/{n}.txt").write_text(f"{n % 2} 0.5 0.5 0.5 0.5\n")
    listed = "\n".join(["file_name,kind,weight", *(f"{n}.png,{'ab'[n % 2]},1.5" for n in range(4))])
    (tmp_path / "table.csv").write_text(listed)
    words: list[str | Path] = ["--masks", tmp_path / "masks", "--boxes", tmp_path / "boxes"]
    words += ["--metadata", tmp_path / "table.csv", "--label", "kind", "--target", "weight"]
    # 4.png is not listed yet: skipped by name, and new once it is.
    assert prepare(tmp_path, *words).exit_code == 3
    (tmp_path / "table.csv").write_text(f"{listed}\n4.png,a,2.0")
    (tmp_path / "boxes/4.txt").write_text("1 0.5 0.5 1 1\n")

    assert prepare(tmp_path, "--append", *words).exit_code == 0

    ds = open_dataset(tmp_path / "out", verify=True)
    sample = ds[4]
    assert (sample["key"], sample["label"], sample["targets"].tolist()) == ("4.png", 0, [2.0])
    assert sample["mask"].unique().tolist() == [4]
    assert sample["boxes"].tolist() == [[0, 0, 8, 8]]
    assert read_manifest(tmp_path / "out").skipped == 0
    assert (tmp_path / "out/skipped.jsonl").read_text() == ""
    (tmp_path / "table.csv").write_text(f"{listed}\n4.png,a,3.0")
    photo(tmp_path / "in/5.png", 5)
    mask(tmp_path / "masks/5.png", 5)
    refused = prepare(tmp_path, "--append", *words)
    assert (
        "4.png has another mask, other boxes, or the metadata say something else" in refused.stderr
    )


def test_a_group_of_zarr_grows_for_readers_that_know_zarr_alone(tmp_path: Path) -> None:
    import zarr

    words = ("--format", "zarr", "--shard-size", "700")  # three photos
    for number in range(4):
        photo(tmp_path / f"in/{number}.png", number)
    assert prepare(tmp_path, *words).exit_code == 0
    for number in range(4, 6):
        photo(tmp_path / f"in/{number}.png", number)
    assert prepare(tmp_path, "--append", *words).exit_code == 0

    group = zarr.open_group(tmp_path / "out", mode="r")["train"]
    valid = group["valid"][:]
    ds = open_dataset(tmp_path / "out")
    expected = np.stack([ds[index]["image"].numpy().transpose(1, 2, 0) for index in range(6)])
    assert valid.sum() == 6
    assert np.array_equal(group["image_8"][:][valid], expected)


def test_texts_are_appended_document_by_document(tmp_path: Path) -> None:
    bpe = make_bpe(tmp_path / "bpe")
    (tmp_path / "in").mkdir()
    words = ("tokens", tmp_path / "in", tmp_path / "out", "--tokenizer", bpe)
    words += ("--engine", "transformers")
    write_jsonl(tmp_path / "in/b.jsonl", ["one", "two dogs"])
    assert call(*words).exit_code == 0
    old = stored(tmp_path / "out")
    before = tree(tmp_path / "out")
    write_jsonl(tmp_path / "in/a.jsonl", ["three", "four cats"])
    assert "in/" not in (refused := call(*words)).stdout
    assert "a.jsonl is new" in refused.stderr

    assert call(*words, "--append").exit_code == 0

    assert stored(tmp_path / "out")[:2] == old
    assert len(stored(tmp_path / "out")) == 4
    shards = {path: at for path, at in before.items() if path.suffix == ".npy"}
    assert shards.items() <= tree(tmp_path / "out").items()
    assert call(*words).stdout.startswith("nothing to do: 4 samples")
    assert call("check", tmp_path / "out", "--full").exit_code == 0
    next(iter(shards)).unlink()
    assert call("repair", tmp_path / "out", tmp_path / "in").exit_code == 0
    for option in (("--dedup", "exact"), ("--shuffle-documents", "1")):
        refused = call(*words, "--append", *option)
        assert (refused.exit_code, "all documents" in refused.stderr) == (1, True)


def test_a_table_says_that_new_rows_are_a_dataset_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,b\n1,x\n2,y\n")
    assert call("table", tmp_path / "in.csv", tmp_path / "out").exit_code == 0
    before = tree(tmp_path / "out")
    refused = call("table", tmp_path / "in.csv", tmp_path / "out", "--append")
    assert_refused(refused, tmp_path, before, "nothing can be appended to a table", "--like")


def test_what_was_skipped_stays_listed(grown: Path) -> None:
    (grown / "in/a/0.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (grown / "in/b/x.png").symlink_to(grown / "in/b/1.png")
    assert prepare(grown, "--overwrite").exit_code == 3
    (grown / "in/b/9.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert prepare(grown, "--append").exit_code == 3
    lines = (grown / "out/skipped.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["b/x.png", "a/0.png", "b/9.png"]
    assert read_manifest(grown / "out").skipped == 3


def test_a_list_of_skipped_items_that_is_missing_is_named_before_anything_is_made(
    grown: Path,
) -> None:
    (grown / "in/a/9.png").write_bytes(b"\x89PNG and no more")
    assert prepare(grown, "--append", "--max-skipped", "1").exit_code == 0
    photo(grown / "in/b/9.png", 9)
    (grown / "out/skipped.jsonl").unlink()
    before = tree(grown / "out")
    refused = prepare(grown, "--append", "--max-skipped", "1")
    assert refused.exit_code == 1
    assert "skipped.jsonl" in refused.stderr
    assert tree(grown / "out") == before


def test_what_nothing_was_skipped_of_needs_no_list(grown: Path) -> None:
    (grown / "out/skipped.jsonl").unlink()
    assert prepare(grown, "--append").exit_code == 0
    assert len(keys(grown)) == 5


def test_a_folder_that_could_not_be_held_can_be_held_again(grown: Path) -> None:
    manifest = grown / "out/manifest.json"
    data = manifest.read_bytes()
    manifest.write_bytes(data[:-9])
    with pytest.raises(ShardsError):
        hold(grown / "out")
    manifest.write_bytes(data)
    hold(grown / "out").release(finished=True)


def test_an_export_that_a_dataset_has_outgrown_is_named(tmp_path: Path) -> None:
    tokenizer = make_bpe(tmp_path / "tokenizer")
    write_jsonl(tmp_path / "in/a.jsonl", ["one text", "another"])
    words = ("tokens", tmp_path / "in", tmp_path / "out", "--tokenizer", tokenizer)
    engine = ("--engine", "transformers")
    assert call(*words, *engine, "--export", "nanogpt").exit_code == 0
    write_jsonl(tmp_path / "in/b.jsonl", ["a third"])
    both = call(*words, *engine, "--export", "nanogpt", "--append")
    assert both.exit_code == 2
    assert "give --append alone" in both.stderr
    assert call(*words, *engine, "--append").exit_code == 0
    stale = call(*words, *engine, "--export", "nanogpt")
    assert stale.exit_code == 1
    assert "out.nanogpt: older than the dataset" in stale.stderr
    shutil.rmtree(tmp_path / "out.nanogpt")
    assert call(*words, *engine, "--export", "nanogpt").exit_code == 0
    assert (tmp_path / "out.nanogpt/train.bin").is_file()


def test_check_knows_the_shards_of_an_append_that_was_stopped(
    grown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("preprocess.run.commit", stop)
        assert prepare(grown, "--append").exit_code != 0
    assert len(keys(grown)) == 4
    checked = call("check", grown / "out")
    assert checked.exit_code == 1
    assert (
        "with the receipts of 1 finished shard; give its command again, which goes on"
        in checked.stdout
    )
    assert "00001.image_8.npy: made by the run that was stopped" in checked.stdout
    assert "remove it\n" not in checked.stdout
    assert prepare(grown, "--append").exit_code == 0
    assert len(keys(grown)) == 5
    assert call("check", grown / "out").exit_code == 0


def test_help_of_tables_shows_no_append() -> None:
    assert "--append" not in call("table", "--help").stdout
    assert "--append" in call("images", "--help").stdout
