"""Faults of inputs and outputs that once passed without a word, each told by name."""

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253 - a test may load what it compares with
import pytest
from click.testing import CliRunner, Result

from loaders import FormatError, open_tokens
from loaders.format.spec import read_manifest
from preprocess.cli import prep
from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.texts import from_arrow as text_tables
from preprocess.texts.read import TextOptions, list_texts, read_documents
from preprocess.threads import InOrder, Stopped
from preprocess.tokens.options import TokenOptions
from tests.tokenizers_made import make_bpe
from tests.waiting import SECONDS


def prepare(tmp_path: Path, *options: str) -> Result:
    if not (tmp_path / "made").exists():
        make_bpe(tmp_path / "made")
    command = ["tokens", str(tmp_path / "source"), str(tmp_path / "out")]
    command += ["--tokenizer", str(tmp_path / "made"), "--engine", "transformers"]
    return CliRunner().invoke(prep, [*command, *options])


def write(tmp_path: Path, **files: str | bytes) -> None:
    for name, data in files.items():
        path = tmp_path / "source" / name.replace("_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)


def test_plain_text_beside_records_has_null_metadata_and_shifts_nobody_elses(
    tmp_path: Path,
) -> None:
    records = [json.dumps({"text": f"record {i}", "id": i}) for i in range(3)]
    write(tmp_path, a_txt="plain", b_jsonl="\n".join(records), c_txt="more")
    assert prepare(tmp_path, "--metadata-keys", "id").exit_code == 0
    documents = open_tokens(tmp_path / "out").documents()
    found = [(documents[i]["key"], documents[i]["metadata"]["id"]) for i in range(5)]
    assert [name.partition("@")[0] for name, _ in found] == ["a.txt", *["b.jsonl"] * 3, "c.txt"]
    assert [number for _, number in found] == [None, 0, 1, 2, None]


@pytest.mark.parametrize(
    ("options", "key"),
    [({"pair_key": "b"}, "'b'"), ({"json_values": True, "text_key": "messages"}, "'messages'")],
)
def test_plain_text_has_no_keys(options: dict[str, Any], key: str, tmp_path: Path) -> None:
    write(tmp_path, a_txt="plain")
    chosen = TextOptions(**options)
    listing = list_texts(tmp_path / "source", chosen)
    with pytest.raises(SampleError, match=f"plain text, which has no key {key}"):
        list(read_documents(ItemFiles(listing.root), listing.splits["train"][0], chosen))


def test_a_tokenizer_file_with_an_unusual_name_leaves_a_dataset_that_opens(tmp_path: Path) -> None:
    write(tmp_path, a_txt="plain")
    make_bpe(tmp_path / "made")
    (tmp_path / "made" / "my säure spm.model").write_bytes(b"unused")
    assert prepare(tmp_path).exit_code == 0
    manifest = read_manifest(tmp_path / "out")
    assert "tokenizer/my säure spm.model" in manifest.extras
    assert CliRunner().invoke(prep, ["check", "--full", str(tmp_path / "out")]).exit_code == 0


@pytest.mark.parametrize("name", ["manifest.json", ".prep/lock", "train/0", "../x", "a//b", "a\nb"])
def test_extras_may_not_name_what_is_not_theirs(name: str, tmp_path: Path) -> None:
    write(tmp_path, a_txt="plain")
    prepare(tmp_path)
    path = tmp_path / "out" / "manifest.json"
    value = json.loads(path.read_bytes())
    value["extras"][name] = [1, "00000000"]
    path.write_text(json.dumps(value))
    with pytest.raises(FormatError, match="a path inside the dataset"):
        read_manifest(tmp_path / "out")


def test_nothing_behind_a_link_is_removed(tmp_path: Path) -> None:
    write(tmp_path, a_txt="plain")
    prepare(tmp_path)
    outside = tmp_path / "elsewhere"
    (tmp_path / "out" / "tokenizer").rename(outside)
    (tmp_path / "out" / "tokenizer").symlink_to(outside)
    before = sorted(path.name for path in outside.iterdir())
    result = prepare(tmp_path, "--overwrite")
    assert result.exit_code == 1
    assert "by a link" in result.output
    assert (tmp_path / "out" / "manifest.json").is_file()
    assert sorted(path.name for path in outside.iterdir()) == before


def test_a_missing_tokenizer_is_seen_by_the_same_command(tmp_path: Path) -> None:
    write(tmp_path, a_txt="plain")
    prepare(tmp_path)
    (tmp_path / "out" / "tokenizer" / "tokenizer.json").unlink()
    result = prepare(tmp_path)
    assert result.exit_code == 1
    assert "tokenizer/tokenizer.json: missing; copy it again" in result.output
    assert prepare(tmp_path, "--overwrite").exit_code == 0


def test_offsets_that_fall_are_refused_by_info(tmp_path: Path) -> None:
    write(tmp_path, a_jsonl='{"text": "one"}\n{"text": "two"}\n{"text": "three"}')
    prepare(tmp_path)
    path = tmp_path / "out" / "train" / "00000.tokens_offsets.npy"
    data = bytearray(path.read_bytes())
    data[-24:-16], data[-16:-8] = data[-16:-8], data[-24:-16]
    path.write_bytes(data)
    result = CliRunner().invoke(prep, ["info", str(tmp_path / "out"), "--show", "3"])
    assert result.exit_code == 1
    assert "00000.tokens_offsets.npy: offsets from 0" in result.output


def test_a_quote_that_never_closes_is_named_before_the_whole_table_is_in_memory(
    tmp_path: Path,
) -> None:
    write(tmp_path, a_csv='id,text\n1,fine\n2,"open\n' + "3,more\n" * 3_000_000)
    options = TextOptions(max_document_nbytes=1_000_000)
    listing = list_texts(tmp_path / "source", options)
    with pytest.raises(SampleError, match=r"line 3: a record of more than [\d,]+ bytes") as caught:
        list(read_documents(ItemFiles(listing.root), listing.splits["train"][0], options))
    held = int(caught.value.reason.partition("more than ")[2].partition(" ")[0].replace(",", ""))
    assert held < 12_000_000


def test_a_table_that_is_compressed_as_a_whole_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"text": ["a" * 3000]}), tmp_path / "a", compression=None)
    write(tmp_path, a_parquet=gzip.compress((tmp_path / "a").read_bytes()))
    monkeypatch.setattr(text_tables, "_MAX_INFLATED_NBYTES", 1000)
    result = prepare(tmp_path)
    assert result.exit_code == 1
    assert "a compressed table of more than 1,000 bytes" in result.output


@pytest.mark.parametrize(
    "shares", [(0.00001, 0.0), (0.99999, 0.0), (float("nan"), 0.0), (0.5, 0.5), (-0.1, 0.2)]
)
def test_shares_that_would_leave_a_split_empty_are_refused(shares: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="validation, test"):
        TokenOptions(tokenizer="x", validation=shares[0], test=shares[1])


def test_few_parts_wait_while_the_disk_is_slow() -> None:
    go_on, started = threading.Event(), threading.Event()

    def store(part: int) -> None:
        started.set()
        assert go_on.wait(SECONDS)

    line = InOrder(store)
    handed = []
    begun = threading.Event()

    def make() -> None:
        for part in range(1, 50):
            line.put(0, part, last=part == 49)
            handed.append(part)
            begun.set()

    storing = threading.Thread(target=line.put, args=(0, 0), kwargs={"last": False})
    storing.start()
    assert started.wait(SECONDS)
    making = threading.Thread(target=make)
    making.start()
    assert begun.wait(SECONDS)
    making.join(0.5)  # as many as are let in
    assert 1 <= len(handed) <= 4
    go_on.set()
    line.wait(1)
    making.join(SECONDS)
    storing.join(SECONDS)
    assert len(handed) == 49


def test_who_waits_learns_the_cause_and_not_that_others_stopped() -> None:
    def store(part: int) -> None:
        raise OSError("disk full")

    line = InOrder(store)
    with pytest.raises(OSError, match="disk full"):
        line.put(0, 0)
    with pytest.raises(Stopped):
        line.put(1, 1)
    with pytest.raises(OSError, match="disk full"):
        line.wait(1)
