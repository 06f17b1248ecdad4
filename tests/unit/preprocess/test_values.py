"""The option values: how sizes and bytes may be written, and how they may not."""

import click
import pytest
from click.testing import CliRunner, Result

from preprocess.values import (
    ByteCount,
    ImageSizes,
    SizesCommand,
    SplitShares,
    join_shares,
    join_sizes,
)


@click.command(cls=SizesCommand)
@click.argument("source")
@click.argument("out")
@click.option("--sizes", type=ImageSizes(), multiple=True, required=True, callback=join_sizes)
@click.option("--nbytes", type=ByteCount(), default="1kB")
@click.option("--split", type=SplitShares(), multiple=True, callback=join_shares)
@click.option("--flag", is_flag=True)
def echo(
    source: str,
    out: str,
    sizes: tuple[tuple[int, int], ...],
    nbytes: int,
    split: dict[str, float],
    flag: bool,
) -> None:
    """Say what was understood."""
    click.echo(f"{source} {out} {sizes} {nbytes} {flag} {split}")


def call(*words: str) -> Result:
    return CliRunner().invoke(echo, words)


BOTH = "src out ((512, 512), (1024, 1024)) 1000"


@pytest.mark.parametrize(
    "words",
    [
        "src out --sizes 512 1024",
        "--sizes 512 1024 src out",
        "src --sizes 512 1024 out",
        "--sizes 512 src --sizes 1024 out",
        "src out --sizes 512,1024",
        "src out --sizes=512,1024",
        "src out --sizes=512 1024",
        "src out --sizes 512, 1024",
        "--sizes 512 1024 -- src out",
        "src out --sizes 512 --sizes=1024",
        "src out --sizes 512 --flag --sizes 1024",
    ],
)
def test_two_sizes_may_be_written_in_every_usual_way(words: str) -> None:
    assert call(*words.split()).stdout.startswith(BOTH)


@pytest.mark.parametrize(
    "value", ["512 1024", "512, 1024", " 512,1024 ", "512x512,1024X1024", "512×512,1024"]
)
def test_one_word_may_hold_several_sizes(value: str) -> None:
    assert call("src", "out", "--sizes", value).stdout.startswith(BOTH)


def test_a_rectangle_is_width_by_height() -> None:
    assert "((640, 480), (32, 32))" in call("src", "out", "--sizes", "640x480", "32").stdout


def test_a_word_that_is_no_size_ends_the_sizes() -> None:
    assert call("--sizes", "512", "1024", "./2024", "out").stdout.startswith("./2024 out ((512")


def test_a_folder_after_two_dashes_may_look_like_a_size() -> None:
    assert call("--sizes", "512", "--", "2024", "2025").stdout.startswith("2024 2025 ((512, 512),)")


def test_a_folder_taken_as_a_size_is_named_with_the_way_out() -> None:
    result = call("--sizes", "512", "2024", "out")
    assert result.exit_code == 2
    assert "Missing argument 'OUT'" in result.stderr
    assert "write ./2024" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("src out --sizes", "at least one size must follow"),
        ("src out --sizes --flag", "at least one size must follow"),
        ("src out --sizes=", "at least one size must follow"),
        ("src out --sizes 0", "a side must be at least 1 pixel"),
        ("src out --sizes 32x0", "'32x0': a side must be at least 1 pixel"),
        ("src out --sizes -5", "'-5': expected sizes such as 512"),
        ("src out --sizes big", "'big': expected sizes such as 512"),
        ("src out --sizes 512x", "'512x': expected sizes such as 512"),
        ("src out --sizes 5.5", "'5.5': expected sizes such as 512"),
        ("src out --sizes 1e3", "'1e3': expected sizes such as 512"),
        ("src out --sizes 512,,1024", "'512,,1024': expected sizes"),
        ("src out --sizes ٣٢", "expected sizes such as 512"),
        ("src out --sizes " + "9" * 5000, "expected sizes such as 512"),
        ("src out --sizes 512 512", "512 is given twice"),
        ("src out --sizes 512 --sizes 512x512", "512 is given twice"),
        ("src out --sizes 64x48,64x48", "64x48 is given twice"),
        ("src out --sizes 512 10px", "unexpected extra argument (10px). Sizes are written 512"),
        ("src out", "Missing option '--sizes'"),
        ("src out -- --sizes 512", "Missing option '--sizes'"),
        ("src out --sizes 512 --flags", "Did you mean '--flag'?"),
    ],
)
def test_wrong_sizes_are_a_usage_error_that_says_what_to_write(words: str, said: str) -> None:
    result = call(*words.split())
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("4096", 4096),
        ("1B", 1),
        ("256MB", 256_000_000),
        ("256 mb", 256_000_000),
        ("1.5GiB", 3 << 29),
        ("2kB", 2000),
        ("2KiB", 2048),
        ("1TB", 10**12),
        ("0.1B", 1),
    ],
)
def test_bytes_may_be_written_with_a_unit(text: str, nbytes: int) -> None:
    assert f" {nbytes} " in call("src", "out", "--sizes", "8", "--nbytes", text).stdout


@pytest.mark.parametrize(
    "text", ["", "0", "0MB", "-1", "12QB", "MB", "1e6", "1.MB", "٣", "9" * 400]
)
def test_wrong_bytes_are_a_usage_error(text: str) -> None:
    result = call("src", "out", "--sizes", "8", "--nbytes", text)
    assert result.exit_code == 2
    assert "expected bytes such as 256MB" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        "src out --split train=0.8 validation=0.1 test=0.1 --sizes 8",
        "--split train=0.8 validation=0.1 test=0.1 src out --sizes 8",
        "src --split train=.8,val=0.1,test=.1 out --sizes 8",
        "src out --split=train=0.80 --split validation=0.1 --sizes 8 --split test=0.1",
        "--sizes 8 --split train=0.8, val=0.1 test=0.1 -- src out",
    ],
)
def test_shares_may_be_written_in_every_usual_way(words: str) -> None:
    shares = "{'train': 0.8, 'validation': 0.1, 'test': 0.1}"
    assert call(*words.split()).stdout.strip() == f"src out ((8, 8),) 1000 False {shares}"


def test_the_share_of_train_is_the_rest() -> None:
    stdout = call(*["src", "out", "--sizes", "8", "--split", "test=1.", "validation=0"]).stdout
    assert stdout.endswith("{'test': 1.0, 'validation': 0.0}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--split", "expected shares such as train=0.8 validation=0.1 test=0.1"),
        ("--split --flag", "expected shares such as"),
        ("--split dev=0.1", "'dev=0.1': expected shares such as"),
        ("--split test=10%", "'test=10%': expected shares such as"),
        ("--split test=-0.1", "'test=-0.1': expected shares such as"),
        ("--split test=0.1 val=0.1 validation=0.2", "validation is given twice"),
        ("--split train=0.8 test=0.1", "the shares add up to 0.9, not to 1"),
    ],
)
def test_other_shares_are_refused_with_an_example(words: str, said: str) -> None:
    result = call("src", "out", "--sizes", "8", *words.split())
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
