"""What is said of input that is not what it looks like: the cause, and a remedy that helps."""

import io
import json
import tarfile
import zipfile
from datetime import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest
from click.testing import Result

from loaders import TableEncoder
from preprocess import TableOptions, table_to_shards
from tests.token_commands import call


def prepare(tmp_path: Path, name: str, text: str, *words: Any) -> Result:
    (tmp_path / name).write_text(text)
    return call("table", tmp_path / name, tmp_path / f"out-{name}", *words)


def test_regression_on_texts_names_the_task(tmp_path: Path) -> None:
    words = ("--target", "y", "--task", "regression")
    done = prepare(tmp_path, "a.csv", "x,y\n1,2\n2,red\n", *words)
    assert done.exit_code == 1
    assert "a.csv:3: target 'y': 'red' is no number, and --task regression" in done.stderr
    assert "--numeric" not in done.stderr


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.time64("ns"), "holds time64[ns], some finer than microseconds"),
        (pa.timestamp("ns"), "holds timestamp[ns], some finer than microseconds"),
        (pa.timestamp("ns", "UTC"), "holds timestamp[ns, tz=UTC], some finer than microseconds"),
        (pa.duration("s"), "holds duration[s], spans of time"),
    ],
)
def test_times_that_cannot_be_stored_say_why(tmp_path: Path, kind: Any, said: str) -> None:
    pq.write_table(pa.table({"t": pa.array([1000, 1001], kind)}), tmp_path / "a.parquet")
    done = call("table", tmp_path / "a.parquet", tmp_path / "out")
    assert done.exit_code == 1
    assert said in done.stderr
    assert "--ignore t" in done.stderr


def test_times_beyond_microseconds_of_64_bits_say_so(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([1 << 50, 3], pa.timestamp("s"))})
    with pytest.raises(Exception, match=r"beyond the years that microseconds"):
        table_to_shards(table, tmp_path / "out")


def test_times_of_day_are_stored_exactly_and_said_to_be(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"t": [time(1, 2, 3, 4), time(5)], "x": [1, 2]}), tmp_path / "a.parquet"
    )
    done = call("table", tmp_path / "a.parquet", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "column 't': times of day, as whole microseconds" in done.stdout


def test_names_of_columns_of_a_frame_are_no_header(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.arange(6).reshape(3, 2))
    report = table_to_shards(frame, tmp_path / "out", TableOptions())
    assert not [note for note in report.notes if "header" in note]
    (tmp_path / "a.csv").write_text("0,1\n2,a\n3,b\n")
    report = table_to_shards(tmp_path / "a.csv", tmp_path / "file", TableOptions())
    assert [note for note in report.notes if "--no-header" in note]


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip", "a.csv.zip", "archive"])
def test_an_archive_is_named_as_one(tmp_path: Path, name: str) -> None:
    data = b"x,y\n1,2\n"
    path = tmp_path / name
    if "zip" in name:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.csv", data)
    else:
        with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as tar:
            info = tarfile.TarInfo("a.csv")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    done = call("table", path, tmp_path / "out")
    assert done.exit_code == 1
    what = "ZIP" if "zip" in name else "tar"
    assert f"{name}: a {what} archive; unpack it" in done.stderr


def test_an_empty_text_in_quotes_among_numbers_gets_a_remedy_that_helps(tmp_path: Path) -> None:
    done = prepare(tmp_path, "a.csv", 'x,y\n1,2\n"",3\n5,4\n')
    assert "a.csv:3: column 'x': 2 of 3 values are numbers" in done.stdout
    assert "leave the quotes out" in done.stdout
    assert "--null-values" not in done.stdout


def test_nan_of_json_is_missing_among_texts_too(tmp_path: Path) -> None:
    lines = '{"x": "a"}\n{"x": NaN}\n{"x": "b"}\n{"x": 1.5}\n'
    done = prepare(tmp_path, "a.jsonl", lines)
    assert done.exit_code == 0
    out = tmp_path / "out-a.jsonl"
    codes = np.load(out / "train" / "00000.record.npy")["x"]
    assert (codes[1], set(codes.tolist())) == (0, {0, 2, 3, 4})
    encoded = TableEncoder(out).encode({"x": ["a", float("nan"), "b", 1.5]})
    assert encoded["x"].tolist() == codes.tolist()


def test_infinities_of_json_are_numbers_and_counted(tmp_path: Path) -> None:
    done = prepare(tmp_path, "a.jsonl", '{"x": 1}\n{"x": Infinity}\n{"x": NaN}\n{"x": -Infinity}\n')
    assert "column 'x': 2 infinite values in train, which its statistics leave out" in done.stdout
    values = np.load(tmp_path / "out-a.jsonl" / "train" / "00000.record.npy")["x"]
    assert values[[0, 1, 3]].tolist() == [1, np.inf, -np.inf]
    assert np.isnan(values[2])


def test_numbers_beyond_float64_are_listed_as_a_loss_and_infinities_are_none(
    tmp_path: Path,
) -> None:
    rows = "x,z\n1e999,inf\n-1e400,-inf\n1.5,2.5\n" + f"{'9' * 400},Infinity\n"
    done = prepare(tmp_path, "a.csv", rows)
    assert done.exit_code == 0
    done = call("info", tmp_path / "out-a.csv")
    assert "lossy: x: numbers beyond the range of float64 became infinite: 3 values" in done.stdout
    assert "lossy: z" not in done.stdout
    values = np.load(tmp_path / "out-a.csv" / "train" / "00000.record.npy")["x"]
    assert values.tolist() == [np.inf, -np.inf, 1.5, np.inf]


@pytest.mark.parametrize("odd", ["soon", "2024-02-30", ""])
def test_an_odd_value_among_dates_is_named_with_its_line(tmp_path: Path, odd: str) -> None:
    done = prepare(tmp_path, "a.csv", f'd\n2024-01-01\n2024-01-02 10:00\n"{odd}"\n2024-01-03\n')
    assert done.exit_code == 0
    assert "a.csv:4: column 'd': " in done.stdout
    assert f"written like dates or times, and {odd!r} is none" in done.stdout


def test_words_among_which_few_are_dates_are_only_words(tmp_path: Path) -> None:
    words = "\n".join(f"word{number}" for number in range(9))
    done = prepare(tmp_path, "a.csv", f"d\n{words}\n2024-01-01\n")
    assert "written like dates" not in done.stdout


@pytest.mark.parametrize("text", ["1.0", "1e0", "1.", "10e-1", "9007199254740993.0"])
def test_new_numbers_that_are_written_with_places_are_whole_where_they_are(
    tmp_path: Path, text: str
) -> None:
    known = "x\n9007199254740993\n1\n"
    prepare(tmp_path, "known.csv", known)
    out = tmp_path / "out-known.csv"
    done = prepare(tmp_path, "new.csv", f"x\n{text}\n1\nNA\n", "--like", out)
    assert done.exit_code == 0, done.stderr
    records = np.load(tmp_path / "out-new.csv" / "train" / "00000.record.npy")
    assert TableEncoder(out).encode({"x": [text, 1, None]}).tobytes() == records.tobytes()
    assert records["x"].tolist() == [int(float(text) != 1) * (1 << 53) + 1, 1, 0]


def test_new_floats_of_parquet_are_whole_numbers_where_they_are(tmp_path: Path) -> None:
    prepare(tmp_path, "known.csv", "x\n1\n200\n")
    pq.write_table(pa.table({"x": [1.0, None, float("nan"), 7.0]}), tmp_path / "new.parquet")
    like = ("--like", tmp_path / "out-known.csv")
    done = call("table", tmp_path / "new.parquet", tmp_path / "out", *like)
    assert done.exit_code == 0, done.stderr
    codes = np.load(tmp_path / "out" / "train" / "00000.record.npy")["x"]
    assert codes.tolist() == [1, 0, 0, 7]


@pytest.mark.parametrize("text", ["1.5", "1e999", "inf", "1e30", "1e-1"])
def test_new_numbers_that_are_not_whole_are_refused_by_line(tmp_path: Path, text: str) -> None:
    prepare(tmp_path, "known.csv", "x\n1\n200\n")
    like = ("--like", tmp_path / "out-known.csv")
    done = prepare(tmp_path, "new.csv", f"x\n1.0\n{text}\n", *like)
    assert done.exit_code == 1
    assert f"'x': integer there, here {text!r} at new.csv:3" in done.stderr
    with pytest.raises(Exception, match="column 'x', row 1"):
        TableEncoder(tmp_path / "out-known.csv").encode({"x": ["1.0", text]})


def test_quotes_behind_a_blank_are_named_as_a_part_of_the_text(tmp_path: Path) -> None:
    done = prepare(tmp_path, "a.csv", 'x,y\n1, "2.3"\n2, "3"\n')
    assert done.exit_code == 0
    assert "a.csv:2: column 'y': text; in ' \"2.3\"' the quotes are part of it" in done.stdout
    plain = prepare(tmp_path, "b.csv", 'x,y\n1,"2.3"\n2,b\n')
    assert "the quotes are part" not in plain.stdout


def test_a_header_that_is_also_a_value_is_named(tmp_path: Path) -> None:
    done = prepare(tmp_path, "a.csv", "happy\nsad\nhappy\n")
    assert "column 'happy': its name is also one of its values" in done.stdout
    assert "say --no-header" in done.stdout
    told = prepare(tmp_path, "b.csv", "happy\nsad\nhappy\n", "--no-header")
    assert "also one of its values" not in told.stdout


def test_a_tokenizer_without_texts_names_the_option_also_for_new_rows(tmp_path: Path) -> None:
    prepare(tmp_path, "a.csv", "x\n1\n2\n")
    like = ("--like", tmp_path / "out-a.csv")
    done = prepare(tmp_path, "b.csv", "x\n1\n", *like, "--tokenizer", "gpt2")
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert "--tokenizer gpt2: makes tokens of the columns that --text names" in said


def test_lists_without_a_value_are_refused_with_their_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": pa.array([[], []], pa.list_(pa.null()))}), tmp_path / "a.parquet")
    done = call("table", tmp_path / "a.parquet", tmp_path / "out")
    assert done.exit_code == 1
    assert "a.parquet:1: no list has a value in 'v'" in done.stderr


def test_a_column_without_a_name_is_named_in_a_note(tmp_path: Path) -> None:
    done = prepare(tmp_path, "a.csv", "id,,age\n1,x,3\n2,y,4\n")
    assert done.exit_code == 0
    said = "a.csv: the header leaves columns without a name: called 'column_2', by their place"
    assert said in done.output
    named = prepare(tmp_path, "b.csv", "column_1,column_2\n1,x\n2,y\n")
    assert "without a name" not in named.output
    rows = prepare(tmp_path, "c.csv", "1,x\n2,y\n", "--no-header")
    assert "without a name" not in rows.output


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_lists_and_objects_among_other_values_are_told_of(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    rows = [
        {"n": 1, "tags": "plain", "o": {"x": 1}, "v": 3, "l": ["a"], "m": None, "t": '["a"]'},
        {"n": 2, "tags": ["a", "b"], "o": "text", "v": [1, 2], "l": [], "m": None, "t": "x"},
        {"n": 3, "tags": None, "o": None, "v": None, "l": None, "m": [1], "t": None},
        {"n": 4, "tags": ["a"], "o": None, "v": 5, "l": ["b"], "m": [2], "t": "y"},
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    done = prepare(tmp_path, "a.jsonl", text, *words)
    assert done.exit_code == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "lists or objects" in line]
    among = "lists or objects stand among other values, the first at a.jsonl"
    assert said == [
        f"note: column {name!r}: {among}:{line}: each is its JSON, a text like the others"
        for name, line in (("tags", 2), ("o", 1), ("v", 2))
    ]
    assert "lose how it is written" not in done.stdout


def test_lists_of_values_of_several_kinds_are_called_so(tmp_path: Path) -> None:
    text = '{"t": [1, "a"], "w": [[1], [2]]}\n' * 3
    done = prepare(tmp_path, "a.jsonl", text)
    assert done.exit_code == 1
    for name in "tw":
        cause = "holds lists of lists, or of values of several kinds, which no record holds"
        assert f"a.jsonl:1: column {name!r}: {cause}; --ignore {name}" in done.stderr
