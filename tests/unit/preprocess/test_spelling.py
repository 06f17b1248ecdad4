"""Options are named as flags to whom has typed them, and as keywords in Python."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from preprocess import images_to_shards, repair_dataset
from preprocess.cli import prep
from preprocess.errors import OutputError, SourceError
from preprocess.images.beside import MetadataOptions, SplitOptions
from preprocess.images.options import ImageOptions
from preprocess.plan import RunOptions
from preprocess.spelling import Option, OptionError, flag_of, spelled_in_python
from preprocess.tables.options import TableOptions
from preprocess.tables.request import TableRequest
from preprocess.texts.options import TextOptions
from preprocess.tokens.options import TokenOptions
from tests.synthetic import write_image_tree

_RECORDS: Final[dict[str, tuple[tuple[str, Any], ...]]] = {
    "images": (("", ImageOptions), ("splits.", SplitOptions), ("", RunOptions)),
    "tokens": (("", TokenOptions), ("text.", TextOptions), ("", RunOptions)),
    "table": (("", TableOptions), ("", TableRequest), ("", RunOptions)),
}
_NO_FLAGS: Final = {
    "floats",
    "splits",
    "text",
    "text.json_values",
    "source",
    "out",
    "options",
    "wishes",
}


@pytest.mark.parametrize("command", _RECORDS)
def test_every_option_of_a_record_has_a_flag_of_its_command(command: str) -> None:
    flags = {flag for param in prep.commands[command].params for flag in param.opts}
    for prefix, record in _RECORDS[command]:
        names = {f"{prefix}{field.name}" for field in fields(record)} - _NO_FLAGS
        assert {flag_of(name) for name in names} <= flags


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["images", "--sizes", "100", "--fit", "bucket"], "--sizes: 100: expected a multiple of"),
        (["images", "--sizes", "100", "--fit", "bucket"], "of --bucket-step 64, such as 128"),
        (["images", "--sizes", "8x4", "--fit", "longest"], "--sizes: 8x4: --fit longest takes one"),
        (["images", "--sizes", "8", "--bucket-step", "8"], "only with --fit bucket"),
        (
            ["images", "--sizes=8", "--store=jpeg", "--depth=16"],
            "--store jpeg and --depth 16",
        ),
        (["images", "--sizes", "8", "--compress", "zstd"], "--compress zstd: only with --format"),
        (["images", "--sizes", "8", "--split-seed", "3"], "--split-seed 3: only with shares"),
        (["images", "--sizes", "8", "--stratify"], "--stratify: only with shares"),
        (["images", "--sizes", "8", "--key", "path"], "--key: only with --metadata"),
        (["images", "--sizes", "8", "--multi-label", "x"], "--multi-label: only with --metadata"),
        (["images", "--sizes", "8", "--append", "--overwrite"], "--append and --overwrite: give"),
        (
            ["images", "--sizes", "8", "--backend", "threading", "--item-timeout", "1"],
            "--item-timeout: a thread cannot be ended; leave out --backend threading",
        ),
        (["tokens", "--tokenizer", "t", "--layout", "fixed"], "--length: layout fixed needs"),
        (["tokens", "--tokenizer", "t", "--max-document", "0"], "--max-document"),
        (["tokens", "--tokenizer", "t", "--max-item-bytes", "0"], "--max-item-bytes"),
        (["table", "--max-item-bytes", "x"], "--max-item-bytes"),
        (["tokens", "--tokenizer", "t", "--pair-key", "b"], "--pair-key b: only with layout fixed"),
        (
            ["tokens", "--tokenizer", "t", "--layout", "chat", "--chat-day", "x"],
            "--chat-day x: expected a day such as",
        ),
        (["table", "--group-by", "g"], "--group-by: only with shares"),
        (["table", "--categorical", "a,b", "--numeric", "b"], "column 'b' is named by --cat"),
        (["table", "--hash-buckets", "a"], "--hash-buckets a: expected NAME=N"),
        (["table", "--like", "o", "--hash-buckets", "a=3"], "--hash-buckets a=3: what columns"),
        (["table", "--out-of-range", "clip"], "--out-of-range clip: only with --like"),
        (["table", "--decimal", ",", "--thousands", ","], "--decimal, --thousands = ','"),
    ],
)
def test_the_command_line_names_flags(words: list[str], said: str, tmp_path: Path) -> None:
    command, *rest = words
    done = CliRunner().invoke(prep, [command, str(tmp_path), str(tmp_path / "out"), *rest])

    assert done.exit_code == 2
    assert f"Usage: prep {command}" in done.stderr
    message = " ".join(done.stderr.partition("Error:")[2].split())
    assert said in message
    names = {field.name for _, record in _RECORDS[command] for field in fields(record)}
    keywords = {name for name in names if "_" in name}
    assert not keywords & set(message.replace("=", " ").replace(":", " ").split())


def test_an_option_is_spelled_as_python_and_the_shell_take_it() -> None:
    one = OptionError(Option("text", ("a b", "c")), ": leave out --no-header and --shard-size")
    assert str(one) == "text=('a b', 'c'): leave out `header=False` and `shard_nbytes`"
    assert one.as_typed == "--text 'a b,c': leave out --no-header and --shard-size"


@pytest.mark.parametrize(
    "kept", ["a--b", "/data/--filter/x", "--to nanogpt", "prep check OUT --full", "'--filter'"]
)
def test_what_is_no_option_stays_as_it_is(kept: str) -> None:
    assert spelled_in_python(f"{kept}, --overwrite") == f"{kept}, `overwrite=True`"


def test_python_is_told_keywords(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["ant"], 1, size=(8, 8))
    images_to_shards(tmp_path / "photos", tmp_path / "out", ImageOptions(sizes=((8, 8),)))

    with pytest.raises(OutputError, match=r"`resample` is bicubic there.* `overwrite=True`"):
        images_to_shards(
            tmp_path / "photos", tmp_path / "out", ImageOptions(sizes=((8, 8),), resample="box")
        )
    with pytest.raises(OutputError, match=r"leave out `append=True` to begin one"):
        images_to_shards(
            tmp_path / "photos",
            tmp_path / "new",
            ImageOptions(sizes=((8, 8),)),
            RunOptions(append=True),
        )
    with pytest.raises(SourceError, match="nowhere: not found"):
        repair_dataset(tmp_path / "out", tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("record", "given"),
    [
        *(
            (TableOptions, {name: value})
            for name in ("categorical", "numeric", "ignore", "text", "float32", "null_values")
            for value in ("xy", None, (1,))
        ),
        (TextOptions, {"metadata_keys": "xy"}),
        (MetadataOptions, {"path": "rows.csv", "targets": "xy"}),
    ],
)
def test_one_text_in_the_place_of_several_is_refused_by_name(
    record: Any, given: dict[str, Any]
) -> None:
    name, value = list(given.items())[-1]
    with pytest.raises(OptionError, match=re.escape(f"{name}={value!r}: expected a tuple")):
        record(**given)


def test_paths_may_be_texts() -> None:
    options = ImageOptions(
        sizes=((8, 8),),
        masks="masks",  # type: ignore[arg-type]
        boxes="boxes.json",  # type: ignore[arg-type]
        metadata=MetadataOptions(path="rows.csv"),  # type: ignore[arg-type]
    )
    assert (options.masks, options.boxes) == (Path("masks"), Path("boxes.json"))
    assert options.metadata == MetadataOptions(path=Path("rows.csv"))
