"""`prep repair` asks for the same again: every option, and what lies beside the source."""

import shutil
from pathlib import Path

import pytest
from PIL import Image  # noqa: TID253 - a test may write what only Pillow writes

from preprocess import Moved
from preprocess.errors import OutputError, SourceError
from preprocess.repair import repair_dataset
from tests.recipes import read_tree
from tests.small_datasets import Made, prepare
from tests.synthetic import smooth_image, write_image_tree
from tests.token_commands import call


def lose_a_shard(out: Path) -> dict[str, bytes]:
    """Remove the first shard; return what was there before."""
    expected = read_tree(out)
    next(path for path in sorted(out.rglob("*.npy"))).unlink()
    return expected


IMAGES = {
    "depth and colour": ("--depth", "16", "--grayscale", "--pages", "all", "--fit", "shortest"),
    "alpha and margin": ("--alpha", "keep", "--margin", "1.25", "--fit", "pad", "--icc", "ignore"),
    "shares": ("--validation", "0.4", "--split-seed", "3", "--stratify", "--transforms"),
    "buckets": ("--fit", "bucket", "--bucket-step", "4", "--bucket-ratio", "3", "--depth", "16"),
    "no labels": ("--labels", "none", "--background", "black", "--no-upscale", "--fit", "pad"),
    "filter and limits": (
        *("--filter", "lanczos", "--max-pixels", "9000", "--limit", "7"),
        *("--max-item-bytes", "1GB"),
    ),
}


@pytest.mark.parametrize("words", IMAGES.values(), ids=IMAGES)
def test_photos_are_made_again_with_the_options_that_they_had(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    source, out = tmp_path / "photos", tmp_path / "out"
    write_image_tree(source, ["ant", "bee"], 5)
    pages = [Image.fromarray(smooth_image(30 + n, 40, seed=99 + n)) for n in range(3)]
    pages[0].save(source / "ant/pages.tif", save_all=True, append_images=pages[1:])
    Image.fromarray(smooth_image(100, 99, seed=3)).convert("RGBA").save(source / "bee/large.png")
    asked = ("--sizes", "16", "24", "--shard-size", "9kB", "--max-skipped", "1", *words)
    result = call("images", source, out, *asked)
    assert result.exit_code == 0, result.output
    expected = lose_a_shard(out)
    result = call("repair", out, source)
    assert result.exit_code == 0, result.output
    assert read_tree(out) == expected


@pytest.fixture
def paired(made: Made, tmp_path: Path) -> tuple[Path, Path]:
    """Return photos and a dataset with masks, boxes and metadata, made of what lies beside them."""
    source, _ = made("ragged images", "tensor")
    folder = Path(shutil.copytree(source.parent, tmp_path / "here"))
    prepare("ragged images", "tensor", folder / "photos", tmp_path / "out")
    return folder / "photos", tmp_path / "out"


BESIDE = {"masks": "masks", "boxes": "boxes.json", "metadata": "rows.jsonl"}


@pytest.mark.parametrize("option", BESIDE)
def test_what_is_no_more_where_it_was_is_named_and_found_where_it_is_now(
    option: str, paired: tuple[Path, Path], tmp_path: Path
) -> None:
    source, out = paired
    expected = lose_a_shard(out)
    before = read_tree(out)
    here = source.parent / BESIDE[option]
    there = here.rename(tmp_path / f"elsewhere{here.suffix}")
    with pytest.raises(SourceError, match=rf"{here}: not found; .*`{option}` says where"):
        repair_dataset(out, source)
    assert read_tree(out) == before
    result = call("repair", out, source, f"--{option}", there)
    assert result.exit_code == 0, result.output
    assert read_tree(out) == expected


@pytest.mark.parametrize(
    ("option", "name"),
    [("masks", "masks/03.png"), ("boxes", "boxes.json"), ("metadata", "rows.jsonl")],
)
def test_what_has_changed_beside_the_photos_is_refused(
    option: str, name: str, paired: tuple[Path, Path]
) -> None:
    source, out = paired
    lose_a_shard(out)
    before = read_tree(out)
    path = source.parent / name
    data = path.read_bytes()
    changes = {"masks": data + b"\0", "boxes": data.replace(b"9.5", b"8.5")}
    path.write_bytes(changes.get(option, data.replace(b'"y": 0.0', b'"y": 9.0')))
    refusal = f"not what {out} was made from: names or sizes differ, .*`{option}`"
    with pytest.raises(SourceError, match=refusal):
        repair_dataset(out, source)
    assert read_tree(out) == before


@pytest.mark.parametrize("option", BESIDE)
def test_without_its_report_it_is_asked_where_they_are(
    option: str, paired: tuple[Path, Path]
) -> None:
    source, out = paired
    lose_a_shard(out)
    (out / "report.json").unlink()
    places = {name: source.parent / below for name, below in BESIDE.items() if name != option}
    with pytest.raises(OutputError, match=f"where the {option} of its photos are is not known"):
        repair_dataset(out, source, moved=Moved(**places))


@pytest.mark.parametrize("how", ["clip", "missing"])
def test_a_table_like_another_takes_what_is_out_of_range_as_before(
    how: str, tmp_path: Path
) -> None:
    source, train, out = tmp_path / "new.csv", tmp_path / "train", tmp_path / "out"
    (tmp_path / "old.csv").write_text("n,y\n" + "".join(f"{n},{n % 2}\n" for n in range(40)))
    source.write_text("n,y\n" + "".join(f"{3 * n - 9},{n % 2}\n" for n in range(40)))
    assert call("table", tmp_path / "old.csv", train, "--target", "y").exit_code == 0
    words = ("--target", "y", "--like", train, "--out-of-range", how)
    result = call("table", source, out, *words)
    assert result.exit_code == 0, result.output
    expected = lose_a_shard(out)
    train.rename(tmp_path / "moved")
    assert call("repair", out, source, "--like", tmp_path / "moved").exit_code == 0
    assert read_tree(out) == expected
