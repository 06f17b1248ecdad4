"""Files of tables are cut into blocks: where records end, at which lines, between which marks."""

import gzip
from pathlib import Path

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.feather  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet  # noqa: TID253 - a test may load what it compares with
import pytest

from preprocess.errors import SampleError, SourceError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.tables.block import Block
from preprocess.tables.listing import list_tables
from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.read import find_delimiter, read_blocks


def read(path: Path, **options: object) -> list[Block]:
    chosen = TableOptions(**options)  # type: ignore[arg-type]
    listing = list_tables(path, chosen)
    blocks = []
    for items in listing.splits.values():
        for item in items:
            for raw in read_blocks(ItemFiles(listing.root), item, chosen):
                blocks.append(parse_block(raw, chosen))
                blocks[-1].table.validate(full=True)
    return blocks


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def columns(block: Block) -> dict[str, list[object]]:
    return {name: block.table.column(name).to_pylist() for name in block.table.column_names}


@pytest.mark.parametrize(
    ("head", "mark"),
    [
        (b"a,b\n1,2\n", ","),
        (b"a;b\n1,5;2\n", ";"),
        (b"\r\na|b\r\n", "|"),
        (b"a\tb", "\t"),
        (b"a\n1;2\n", ","),
        (b"a;b,c\n", ","),
        (b"a|b;c\n", ","),
        (b'"a;b"|"c\n;"|d\n1;2', "|"),
        (b"", ","),
    ],
)
def test_the_first_record_tells_the_delimiter_and_a_comma_is_taken_in_doubt(
    head: bytes, mark: str
) -> None:
    assert find_delimiter(head) == mark


@pytest.mark.parametrize(
    ("line", "within", "mark"),
    [(b"1,5;2,5", ",", ";"), (b"1,5;2,5", ".", ","), (b"a,b", ",", ","), (b"1|2,5;3", ",", ",")],
)
def test_a_mark_within_numbers_is_no_delimiter_where_another_one_is_there(
    line: bytes, within: str, mark: str
) -> None:
    assert find_delimiter(line, within) == mark


def test_tsv_is_cut_at_tabs_whatever_else_its_header_holds(tmp_path: Path) -> None:
    (block,) = read(write(tmp_path, "a.tsv", "x,1\ty\n1\t2\n"))
    assert columns(block) == {"x,1": [1], "y": [2]}


def test_a_given_delimiter_is_taken(tmp_path: Path) -> None:
    (block,) = read(write(tmp_path, "a.csv", "x,1;y\n1;2\n"), delimiter=";")
    assert columns(block) == {"x,1": [1], "y": [2]}


def test_lines_are_counted_through_quotes_blank_lines_and_the_header(tmp_path: Path) -> None:
    text = '\n\n"x\ny",z\n\n1,"a\nb\nc"\n\n2,d\n3\n4,e\n'
    (block,) = read(write(tmp_path, "a.csv", text))
    assert block.rows.tolist() == [6, 10, 12]
    assert [str(error) for error in block.errors] == ["a.csv:11: 1 fields, and the header has 2"]


def test_a_file_that_has_only_a_header_gives_no_block(tmp_path: Path) -> None:
    assert read(write(tmp_path, "a.csv", "x,y\n")) == []
    assert read(write(tmp_path, "b.csv", "")) == []


def test_without_a_header_columns_are_numbered(tmp_path: Path) -> None:
    (block,) = read(write(tmp_path, "a.csv", "happy,1\nsad,2\n"), header=False)
    assert columns(block) == {"column_1": ["happy", "sad"], "column_2": [1, 2]}
    assert block.rows.tolist() == [1, 2]


def test_a_column_without_a_name_is_named_by_its_number(tmp_path: Path) -> None:
    (block,) = read(write(tmp_path, "a.csv", ",x\n0,5\n"))
    assert columns(block) == {"column_1": [0], "x": [5]}


def test_columns_of_the_same_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"a\.csv:1: several columns are named 'x'"):
        read(write(tmp_path, "a.csv", "x,y,x\n1,2,3\n"))
    table = pa.table([[1], [2]], names=["x", "x"])
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet")
    with pytest.raises(SampleError, match="several columns are named 'x'"):
        read(tmp_path / "b.parquet")


@pytest.mark.parametrize("name", ["a\0c", "x" * 5000])
def test_names_that_no_dataset_could_hold_are_refused_with_their_file(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(SampleError, match=r"a\.csv:1: column 2 .*1 to 4,096 characters"):
        read(write(tmp_path, "a.csv", f"x,{name}\n1,2\n"))
    pyarrow.parquet.write_table(pa.table([[1]], names=[name]), tmp_path / "b.parquet")
    with pytest.raises(SampleError, match=r"b\.parquet: column 1 .*1 to 4,096 characters"):
        read(tmp_path / "b.parquet")


def test_a_header_that_is_not_utf8_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"a\.csv:1: the header is not valid UTF-8"):
        read(write(tmp_path, "a.csv", b"x,\xff\n1,2\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('x\n"a"b\n', "line 2: a quote inside a quoted field"),
        ('x\n1\n"a\n2\n', "line 3: a quote that is never closed"),
        ("PK\x03\x04", "a ZIP archive"),
    ],
)
def test_what_cannot_be_cut_into_records_is_refused_as_a_whole(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(SampleError, match=message):
        read(write(tmp_path, "a.csv", text))


def test_compressed_files_and_other_encodings_are_read(tmp_path: Path) -> None:
    text = "x,y\n1,é\n"
    (one,) = read(write(tmp_path, "a.csv.gz", gzip.compress(text.encode())))
    (two,) = read(write(tmp_path, "b.csv", text.encode("utf-16")))
    (three,) = read(write(tmp_path, "c.csv", text.encode("latin-1")), encoding="latin-1")
    assert columns(one) == columns(two) == columns(three) == {"x": [1], "y": ["é"]}


def test_a_record_that_does_not_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", b'x\n1\n"' + b"a" * 25_000_000)
    with pytest.raises(SampleError, match="line 3: a record of more than"):
        read(path)


def test_folders_that_name_columns_give_them(tmp_path: Path) -> None:
    for year, town in (("2023", "a%20b"), ("2024", "__HIVE_DEFAULT_PARTITION__")):
        folder = tmp_path / f"year={year}" / f"town={town}"
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(pa.table({"x": [1, 2]}), folder / "part.parquet")
    one, two = read(tmp_path)
    assert columns(one) == {"x": [1, 2], "year": [2023] * 2, "town": ["a b"] * 2}
    assert columns(two) == {"x": [1, 2], "year": [2024] * 2, "town": [None] * 2}


def test_row_groups_and_large_ones_are_read_in_bounded_blocks(tmp_path: Path) -> None:
    count = 150_000
    table = pa.table({"x": range(count), "s": [f"v{i % 7}" for i in range(count)]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=100_000)
    blocks = read(tmp_path / "a.parquet")
    assert max(len(block.rows) for block in blocks) <= 1 << 16
    assert [row for block in blocks for row in block.rows.tolist()] == [*range(1, count + 1)]
    assert [v for b in blocks for v in b.table.column("s").to_pylist()] == table["s"].to_pylist()


def test_arrow_files_streams_and_feather_are_read(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2], "s": ["a", None]})
    pyarrow.feather.write_feather(table, str(tmp_path / "a.feather"), compression="zstd")
    with pa.ipc.new_file(tmp_path / "b.arrow", table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(tmp_path / "c.arrow", table.schema) as writer:
        writer.write_table(table)
    for block in read(tmp_path):
        assert columns(block) == {"x": [1, 2], "s": ["a", None]}
        assert block.rows.tolist() == [1, 2]


def test_a_page_whose_bytes_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"x": [*range(1000)]})
    pyarrow.parquet.write_table(
        table, path, write_page_checksum=True, compression="none", use_dictionary=False
    )
    data = bytearray(path.read_bytes())
    data[data.index((500).to_bytes(8, "little"))] ^= 1
    path.write_bytes(data)
    with pytest.raises(SampleError, match=r"a\.parquet: cannot be read: .*CRC"):
        read(path)


def test_a_parquet_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"a\.parquet: cannot be read"):
        read(write(tmp_path, "a.parquet", "x,y\n1,2\n"))


def test_in_folders_plain_text_is_passed_over_and_what_is_named_is_taken(tmp_path: Path) -> None:
    write(tmp_path, "readme.md", "about the data")
    write(tmp_path, "a.csv", "x\n1\n")
    listing = list_tables(tmp_path, TableOptions())
    assert [item.key for item in listing.splits["train"]] == ["a.csv"]
    assert listing.ignored == {"not a table (.md)": 1}
    (block,) = read(write(tmp_path, "iris.data", "x,y\n1,2\n"))
    assert columns(block) == {"x": [1], "y": [2]}


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "readme.md", "about the data")
    with pytest.raises(SourceError, match="no table among"):
        list_tables(tmp_path, TableOptions())


def test_an_empty_compressed_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.csv.gz", b"")
    item = Item("a.csv.gz", 0, (tmp_path / "a.csv.gz").stat().st_mtime_ns)
    with pytest.raises(SampleError, match="truncated"):
        list(read_blocks(ItemFiles(tmp_path), item, TableOptions()))


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_file_that_is_or_becomes_too_large_is_refused_by_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "a.parquet":
        pa.parquet.write_table(pa.table({"a": [*range(9_000)]}), path)
        limit = path.stat().st_size - 1
    else:
        text = b"a,b\n" + b"1,2\n" * 9_000 if "csv" in name else b'{"a": 1}\n' * 9_000
        write(tmp_path, name, gzip.compress(text) if name.endswith("gz") else text)
        limit = len(text) - 1
    with pytest.raises(SampleError, match=r"bytes.* files may have.*raise --max-item-bytes") as got:
        read(path, max_item_nbytes=limit)
    assert got.value.key == name
    assert sum(len(block.table) for block in read(path, max_item_nbytes=limit + 1)) == 9_000
    assert "max_item_nbytes" not in TableOptions().recorded()
