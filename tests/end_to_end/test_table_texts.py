"""A column of texts beside the records: its tokens are those of `prep tokens`, row by row."""

import csv
import json
import pickle  # noqa: TID251 - what worker processes do with a dataset
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest
import torch

from loaders import (
    Loader,
    Mix,
    SelectionError,
    TableDataset,
    TableEncoder,
    estimate_residency,
    open_table,
    open_tokens,
)
from loaders.format.spec import read_manifest
from preprocess import RunOptions, TableOptions, table_to_shards
from preprocess.tokens import engine_packages
from tests.token_commands import Alone, call, read_files, stored
from tests.token_commands import prepare as prepare_tokens
from tests.tokenizers_made import make_bpe

if TYPE_CHECKING:
    from preprocess.tokens.engine_packages import Encode

COUNT = 400
RARE = "zyzzyva"


def text_of(number: int) -> str:
    """Return the text of a row; every seventh has none."""
    kinds = [
        "plain {}",
        "with, comma\nand line {}",
        "<|endoftext|> é {}",
        "{}",
        "  ",
        "Ω {} \u00a0",
    ]
    return "" if number % 7 == 0 else kinds[number % 6].format(number * 31)


def write_table(path: Path, count: int = COUNT) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "note", "y"])
        rows.writerows([n, text_of(n), "ab"[n % 2]] for n in range(count))
    return path


def prepare(source: Path, out: Path, tokenizer: Path, *words: str) -> str:
    result = call("table", source, out, "--text", "note", "--tokenizer", tokenizer, *words)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def rows_of(data: TableDataset) -> dict[int, list[int]]:
    """Return the tokens of each row by its id."""
    place = data.numeric_names.index("id")
    found = {}
    for sample in (data[index] for index in range(len(data))):
        assert sample["length"] == len(sample["tokens"])
        found[int(sample["numeric"][place])] = sample["tokens"].tolist()
    return found


def expected(tokenizer: Path, count: int = COUNT) -> dict[int, list[int]]:
    """Return what `tokenizers` alone gives, with the end of a text behind each."""
    alone = Alone(tokenizer)
    end = alone.id_of("<|endoftext|>")
    return {n: [*alone.ids(text_of(n)), end] if text_of(n) else [] for n in range(count)}


def test_tokens_are_those_of_prep_tokens_and_none_where_the_text_is_missing(
    tmp_path: Path,
) -> None:
    source, tokenizer = write_table(tmp_path / "in.csv"), make_bpe(tmp_path / "bpe")
    said = prepare(source, tmp_path / "out", tokenizer, "--target", "y")
    assert "58 of 400 rows have no text, and no tokens" in said
    found = rows_of(open_table(tmp_path / "out"))
    assert found == expected(tokenizer)
    options = ["--text-key", "note"]
    assert prepare_tokens(source, tmp_path / "tokens", tokenizer, *options).exit_code == 0
    alone = [ids for _, ids in stored(tmp_path / "tokens")]
    assert [ids for ids in found.values() if ids] == [
        ids for n, ids in enumerate(alone) if text_of(n)
    ]
    assert call("check", tmp_path / "out", "--full").exit_code == 0
    assert "tokens" in call("info", tmp_path / "out").stdout


def test_each_file_of_records_lists_and_texts_is_counted_and_opened_once(tmp_path: Path) -> None:
    rows = [{"id": n, "note": text_of(n) or None, "v": [n] * (n % 300)} for n in range(COUNT)]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    prepare(tmp_path / "in.jsonl", tmp_path / "out", make_bpe(tmp_path / "bpe"))
    data = open_table(tmp_path / "out")
    names = ["record", "list_0001", "list_0001_offsets", "tokens", "tokens_offsets"]
    files = (tmp_path / "out/train").iterdir()
    assert sorted(path.name.split(".")[1] for path in files) == sorted(names)
    maps = list(chain.from_iterable(data.all_stretches()))
    assert len({array.ctypes.data for array in maps}) == len(maps) == len(names)
    assert sum(array.nbytes for array in maps) == estimate_residency(data).stored_nbytes


def test_sources_of_all_kinds_give_the_same_tokens(tmp_path: Path) -> None:
    tokenizer = make_bpe(tmp_path / "bpe")
    table = pa.table(
        {"id": range(COUNT), "note": [text_of(n) or None for n in range(COUNT)]},
        schema=pa.schema([("id", pa.int64()), ("note", pa.string())]),
    )
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=90)
    lines = [json.dumps({"id": n, "note": text_of(n) or None}) for n in range(COUNT)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    options = TableOptions(text=("note",), tokenizer=str(tokenizer))
    for number, source in enumerate((tmp_path / "in.parquet", tmp_path / "in.jsonl")):
        out = tmp_path / str(number)
        table_to_shards(source, out, options, RunOptions(workers=2))
        assert rows_of(open_table(out)) == expected(tokenizer)


@pytest.mark.parametrize("words", [[], ["--shuffle", "5"]])
@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_tokens_stay_with_their_rows_in_splits_and_shards_for_any_workers(
    words: list[str], container: str, tmp_path: Path
) -> None:
    tokenizer = make_bpe(tmp_path / "bpe")
    table = pa.table({"id": range(COUNT), "note": [text_of(n) or None for n in range(COUNT)]})
    source = tmp_path / "in.parquet"
    pq.write_table(table, source, row_group_size=70)  # as many rows to a block
    words = [*words, "--validation", "0.3", "--shard-size", "1kB", "--format", container]
    for workers in ("1", "3"):
        prepare(source, tmp_path / workers, tokenizer, *words, "--workers", workers)
    first, second = (read_files(tmp_path / workers) for workers in ("1", "3"))
    assert {n: b for n, b in first.items() if "report" not in n} == {
        n: b for n, b in second.items() if "report" not in n
    }
    splits = [open_table(tmp_path / "1", split) for split in ("train", "validation")]
    assert len(splits[0].manifest.splits["train"].counts) > 1
    found = [rows_of(split) for split in splits]
    assert not set(found[0]) & set(found[1])
    assert {**found[0], **found[1]} == expected(tokenizer)
    assert (list(found[0]) == sorted(found[0])) == ("--shuffle" not in words)


def test_batches_carry_the_tokens_padded_to_the_longest(tmp_path: Path) -> None:
    source, tokenizer = write_table(tmp_path / "in.csv"), make_bpe(tmp_path / "bpe")
    prepare(source, tmp_path / "out", tokenizer, "--target", "y")
    wanted, pad = expected(tokenizer), Alone(tokenizer).id_of("<|pad|>")
    data = open_table(tmp_path / "out")
    seen = []
    for batch in Loader(data, batch_size=16, seed=3):
        ids = batch["numeric"][:, 0].long().tolist()
        assert batch["tokens"].dtype == batch["length"].dtype == torch.int64
        assert batch["tokens"].shape == (16, max(len(wanted[n]) for n in ids))
        rows = zip(ids, batch["tokens"], batch["length"].tolist(), batch["target"], strict=True)
        for n, row, length, target in rows:
            assert row[:length].tolist() == wanted[n]
            assert set(row[length:].tolist()) <= {pad}
            assert target == n % 2
        seen += ids
    assert sorted(seen) == list(range(COUNT))


TWO = ["--text", "note,title", "--target", "y"]


def write_two(path: Path, count: int = COUNT) -> Path:
    """Write rows of two columns of texts: the title is the note of 3 rows further on."""
    titles = [text_of(n + 3) or None for n in range(count)]
    columns = {
        "id": range(count),
        "note": [text_of(n) or None for n in range(count)],
        "title": titles,
        "y": [n % 2 == 0 for n in range(count)],
        "long": [[0.5] * (n % 50) for n in range(count)],
    }
    pq.write_table(pa.table(columns), path, row_group_size=70)
    return path


@pytest.mark.parametrize("words", [[], ["--shuffle", "5"]])
@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_each_of_several_columns_has_its_own_tokens(
    words: list[str], container: str, tmp_path: Path
) -> None:
    source, tokenizer = write_two(tmp_path / "in.parquet"), make_bpe(tmp_path / "bpe")
    options = [*TWO, "--tokenizer", tokenizer, "--shard-size", "20kB", "--format", container]
    for workers in ("1", "3"):
        done = call("table", source, tmp_path / workers, *options, *words, "--workers", workers)
        assert done.exit_code == 0, done.stderr
    assert "column 'title': tokens beside the records" in done.stdout
    first, second = (read_files(tmp_path / workers) for workers in ("1", "3"))
    assert {n: b for n, b in first.items() if "report" not in n} == {
        n: b for n, b in second.items() if "report" not in n
    }
    out = tmp_path / "1"
    assert call("check", out, "--full").exit_code == 0
    assert "tokens_0001" in call("info", out).stdout
    wanted = expected(tokenizer, COUNT + 3)
    data = pickle.loads(pickle.dumps(open_table(out)))
    assert data.manifest.version == 4
    maps = list(chain.from_iterable(data.all_stretches()))
    assert estimate_residency(data).stored_nbytes == sum(each.nbytes for each in maps)
    pad, seen = Alone(tokenizer).id_of("<|pad|>"), []
    for batch in Loader(data, batch_size=16, seed=3):
        assert "tokens" not in batch
        ids = batch["numeric"][:, data.numeric_names.index("id")].long().tolist()
        for name, ahead in (("note", 0), ("title", 3)):
            tokens, lengths = batch[f"{name}_tokens"], batch[f"{name}_length"].tolist()
            assert tokens.shape[1] == max(lengths)
            for n, row, length in zip(ids, tokens, lengths, strict=True):
                assert row[:length].tolist() == wanted[n + ahead]
                assert set(row[length:].tolist()) <= {pad}
        seen += ids
    assert sorted(seen) == list(range(COUNT))
    sample = data[5]
    assert sample["title_length"] == len(sample["title_tokens"])
    with pytest.raises(SelectionError, match="a table with tokens cannot be mixed"):
        Mix({data: 0.5, open_table(out): 0.5})
    with pytest.raises(SelectionError, match=r"the tokens of several columns: .*open_table"):
        open_tokens(out)
    with pytest.raises(SelectionError, match=r"'title': no tokens .* in 'title_tokens', padded"):
        TableEncoder(out).batch({"id": [1], "title": ["a"]})


def test_new_rows_of_several_columns_are_those_of_the_first_run(tmp_path: Path) -> None:
    source, tokenizer = write_two(tmp_path / "in.parquet", 60), make_bpe(tmp_path / "bpe")
    known, again = tmp_path / "out", tmp_path / "again"
    assert call("table", source, known, *TWO, "--tokenizer", tokenizer).exit_code == 0
    like = ["--like", known, "--target", "y", "--tokenizer", known / "tokenizer"]
    for text in ("note", "title,note"):
        done = call("table", source, again, *like, "--text", text)
        assert done.exit_code == 1
        assert f"of column 'note', 'title': give --text note --text title --tokenizer {known}" in (
            done.stderr
        )
    done = call("table", source, again, *like, "--text", "note,title")
    assert done.exit_code == 0, done.stderr
    ours, theirs = read_files(known), read_files(again)
    shards = [name for name in ours if name.startswith("train/")]
    assert len(shards) > 4
    assert all(ours[name] == theirs[name] for name in shards)


def test_a_list_called_as_the_tokens_of_one_of_several_texts_is_named(tmp_path: Path) -> None:
    table = {"a": ["x", "y"], "b": ["x", "z"], "b_tokens": [[1, 2], [3, 4]]}
    options = TableOptions(text=("a", "b"), tokenizer=str(make_bpe(tmp_path / "bpe")))
    table_to_shards(pa.table(table), tmp_path / "out", options)
    with pytest.raises(SelectionError, match="a list column is called 'b_tokens' or 'b_length'"):
        open_table(tmp_path / "out")


def test_serving_says_that_texts_need_their_tokenizer(tmp_path: Path) -> None:
    source, tokenizer = write_table(tmp_path / "in.csv", 20), make_bpe(tmp_path / "bpe")
    prepare(source, tmp_path / "out", tokenizer, "--target", "y")
    encoder, rows = TableEncoder(tmp_path / "out"), {"id": [1, 2], "note": ["a", "b"]}

    assert encoder.text_names == ("note",)
    with pytest.raises(SelectionError, match=r"column 'note': no tokens .*out/tokenizer, as by"):
        encoder.batch(rows)
    assert set(encoder.batch({"id": [1, 2]})) == {"numeric"}
    assert encoder.encode(rows).tobytes() == encoder.encode({"id": [1, 2]}).tobytes()


def test_rows_as_long_as_the_longest_of_a_batch_are_not_mixed(tmp_path: Path) -> None:
    source, tokenizer = write_table(tmp_path / "in.csv"), make_bpe(tmp_path / "bpe")
    prepare(source, tmp_path / "out", tokenizer)
    data = open_table(tmp_path / "out")
    with pytest.raises(SelectionError, match="a table with tokens cannot be mixed"):
        Mix({data: 0.5, open_table(tmp_path / "out"): 0.5})


def test_new_rows_take_the_same_tokenizer_and_leave_no_text_out(tmp_path: Path) -> None:
    source, tokenizer = write_table(tmp_path / "in.csv"), make_bpe(tmp_path / "bpe")
    prepare(source, tmp_path / "out", tokenizer)
    new = write_table(tmp_path / "new.csv", 50)

    bare = call("table", new, tmp_path / "bare", "--like", tmp_path / "out")
    assert bare.exit_code == 1
    assert f"--text note --tokenizer {tmp_path / 'out'}/tokenizer" in bare.stderr
    words = ["--like", str(tmp_path / "out")]
    prepare(new, tmp_path / "new", tmp_path / "out" / "tokenizer", *words)
    assert rows_of(open_table(tmp_path / "new")) == expected(tokenizer, 50)
    (tmp_path / "less.csv").write_text("id,y\n1,a\n")
    named = ["--text", "note", "--tokenizer", tokenizer, *words]
    less = call("table", tmp_path / "less.csv", tmp_path / "less", *named)
    assert (less.exit_code, "--text 'note': no such column" in less.stderr) == (1, True)


def test_what_is_no_column_of_texts_is_refused(tmp_path: Path) -> None:
    tokenizer = make_bpe(tmp_path / "bpe")
    pq.write_table(pa.table({"note": [0.5, 1.5], "id": [1, 2]}), tmp_path / "in.parquet")
    words = ["--text", "note", "--tokenizer"]
    floats = call("table", tmp_path / "in.parquet", tmp_path / "out", *words, tokenizer)
    assert (floats.exit_code, floats.stderr.count("\n")) == (1, 1)
    assert "column 'note': holds double, and --text asks for texts" in floats.stderr
    nowhere = call("table", tmp_path / "in.parquet", tmp_path / "out", *words, tmp_path / "none")
    assert (nowhere.exit_code, nowhere.stderr.count("\n")) == (1, 1)
    assert not (tmp_path / "out").exists()


def test_an_engine_that_breaks_down_late_has_its_shards_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(cleaned: str) -> "Encode":
        whole = engine_packages._fastokens(cleaned)

        def encode(texts: "pa.LargeStringArray") -> Any:
            if any(RARE in text for text in texts.to_pylist()):
                raise OverflowError("out of range")
            return whole(texts)

        return encode

    pytest.importorskip("fastokens")
    monkeypatch.setitem(engine_packages.LOADERS, "gigatoken", load)  # type: ignore[attr-defined]
    monkeypatch.setattr("preprocess.tables.tokens._SAMPLE_NBYTES", 100)
    tokenizer = make_bpe(tmp_path / "bpe")
    texts = [f"row {n} {RARE if n == 350 else ''}" for n in range(COUNT)]
    source = tmp_path / "in.csv"
    source.write_text("id,note\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)))
    said = prepare(source, tmp_path / "out", tokenizer, "--shard-size", "1kB")
    assert "made again: 1 shards, whose first result was wrong" in said
    assert read_manifest(tmp_path / "out").recipe["engine"]["engine"] == "gigatoken"
    alone = Alone(tokenizer)
    found = rows_of(open_table(tmp_path / "out"))
    assert [ids[:-1] for ids in found.values()] == [alone.ids(text) for text in texts]


def test_the_tokens_are_what_numpy_alone_reads(tmp_path: Path) -> None:
    source, tokenizer = write_table(tmp_path / "in.csv"), make_bpe(tmp_path / "bpe")
    prepare(source, tmp_path / "out", tokenizer)
    folder = tmp_path / "out" / "train"
    tokens = np.load(folder / "00000.tokens.npy")
    ends = np.load(folder / "00000.tokens_offsets.npy").astype(np.int64)
    rows = np.load(folder / "00000.record.npy")
    found = [tokens[a:b].tolist() for a, b in pairwise(ends)]
    assert len(rows) == len(found) == COUNT
    assert found == list(expected(tokenizer).values())
