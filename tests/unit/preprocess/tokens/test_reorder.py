"""Documents in another order and without duplicates: what a whole run stores."""

import json
import shutil
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from loaders import open_tokens
from loaders.format.spec import Container, read_manifest
from preprocess.cli import prep
from preprocess.errors import OutputError, SourceError
from preprocess.plan import RunOptions
from preprocess.report import Report
from preprocess.texts.options import TextOptions
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.prepare import plan_tokens, run_tokens, tokens_to_shards
from preprocess.tokens.reorder import first_folder
from tests.recipes import read_tree
from tests.tokenizers_made import make_bpe, make_wordpiece

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "writing", "samples"]

by_reference = partial(TokenOptions, engine="transformers")
"""Options of runs that start at once: the reference is compared with nothing."""

Found = list[tuple[list[int], bytes]]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_bpe(tmp_path_factory.mktemp("bpe")))


def texts_of(count: int, seed: int = 0) -> list[str]:
    """Different texts of 0 to 30 words; one is empty."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 30, count)
    return [
        "" if index == 3 else " ".join([f"{index}:", *generator.choice(WORDS, length)])
        for index, length in enumerate(lengths)
    ]


def write_lines(path: Path, texts: list[str], **more: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [
        {"text": text, **{name: values[i] for name, values in more.items()}}
        for i, text in enumerate(texts)
    ]
    lines = [json.dumps(record) for record in records]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def small(**changes: Any) -> RunOptions:
    values: dict[str, Any] = {"shard_nbytes": 1500, "workers": 2, **changes}
    return RunOptions(**values)


def documents_of(out: Path, split: str = "train") -> Found:
    """Return the ids and the key of every document of a stream or a chat, in order."""
    stored = open_tokens(out, split)
    view = stored.documents() if stored.layout == "stream" else stored.chat()
    found = [view[index] for index in range(len(view))]
    name = "tokens" if stored.layout == "stream" else "x"
    return [(sample[name].tolist(), str(sample["key"]).encode()) for sample in found]


def tallies_of(out: Path, split: str = "train") -> dict[str, tuple[int, ...]]:
    return dict(read_manifest(out).splits[split].tallies)


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_shuffled_documents_are_those_of_the_input_in_another_order(
    container: Container, bpe: str, tmp_path: Path
) -> None:
    source = tmp_path / "texts"
    write_lines(source / "a.jsonl", texts_of(60))
    write_lines(source / "b.jsonl", texts_of(30, seed=1))
    plain = by_reference(tokenizer=bpe)
    tokens_to_shards(source, tmp_path / "plain", plain, small(container=container))
    options = TokenOptions(tokenizer=bpe, shuffle_documents=5)
    report = tokens_to_shards(source, tmp_path / "out", options, small(container=container))

    before, after = documents_of(tmp_path / "plain"), documents_of(tmp_path / "out")

    assert after != before
    assert sorted(after) == sorted(before)
    assert tallies_of(tmp_path / "out") == tallies_of(tmp_path / "plain")
    assert report.samples == {"train": 90}
    assert len(read_manifest(tmp_path / "out").splits["train"].counts) > 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "plain", "texts"]


def test_the_order_follows_from_the_seed_alone(bpe: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "texts.jsonl", texts_of(50))
    found = {}
    for name, seed, options in (
        ("one", 1, small(workers=1)),
        ("same", 1, small(workers=3)),
        ("processes", 1, small(workers=2, backend="loky")),
        ("wide", 1, small(shard_nbytes=10**6)),
        ("other", 2, small()),
    ):
        chosen = by_reference(tokenizer=bpe, shuffle_documents=seed)
        tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / name, chosen, options)
        found[name] = documents_of(tmp_path / name)

    assert read_tree(tmp_path / "one") == read_tree(tmp_path / "same")
    assert read_tree(tmp_path / "one") == read_tree(tmp_path / "processes")
    assert found["one"] == found["wide"]
    assert found["one"] != found["other"]


def test_each_layout_lays_the_documents_out_as_it_does_in_the_order_of_the_input(
    bpe: str, tmp_path: Path
) -> None:
    write_lines(tmp_path / "texts.jsonl", texts_of(40), id=list(range(40)))
    text = TextOptions(metadata_keys=("id",))
    stream = by_reference(tokenizer=bpe, shuffle_documents=4, bos=None, text=text)
    tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / "stream", stream, small())
    documents = [ids for ids, _ in documents_of(tmp_path / "stream")]
    packed = by_reference(
        tokenizer=bpe, shuffle_documents=4, bos=None, text=text, layout="packed", length=64
    )
    tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / "packed", packed, small())
    fixed = by_reference(
        tokenizer=bpe, shuffle_documents=4, text=text, layout="fixed", length=8, stride=2
    )
    tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / "fixed", fixed, small())

    view = open_tokens(tmp_path / "packed").packed()
    pieces = []
    for index in range(len(view)):
        bounds = view[index]["cu_seqlens"].tolist()
        ids = view[index]["tokens"].tolist()
        pieces += [ids[first:end] for first, end in pairwise(bounds)]
    for ids in documents:
        cut = [ids[i : i + 64] for i in range(0, len(ids), 64)]
        assert all(piece in pieces for piece in cut)
    keys = keys_of(tmp_path / "fixed")
    assert list(dict.fromkeys(keys)) == [key for _, key in documents_of(tmp_path / "stream")]
    numbers = [json.loads(line)["id"] for line in field_of(tmp_path / "fixed", "metadata")]
    assert len(set(numbers)) == 40
    assert sorted(dict(zip(keys, numbers, strict=True)).values()) == list(range(40))


def field_of(out: Path, name: str, split: str = "train") -> list[bytes]:
    """Return a ragged field of bytes, read with NumPy alone."""
    found = []
    for values in sorted((out / split).glob(f"*.{name}.npy")):
        offsets = np.load(values.with_name(values.name.replace(name, f"{name}_offsets")))
        data = np.load(values)
        found += [data[first:end].tobytes() for first, end in pairwise(offsets.tolist())]
    return found


def keys_of(out: Path, split: str = "train") -> list[bytes]:
    return field_of(out, "key", split)


def test_of_the_same_texts_the_first_is_kept_over_all_files(bpe: str, tmp_path: Path) -> None:
    source = tmp_path / "texts"
    texts = texts_of(40)
    write_lines(source / "a.jsonl", [*texts[:20], texts[4], "", texts[5] + " "])
    write_lines(source / "b.jsonl", [*texts[10:], texts[39]])
    tokens_to_shards(source, tmp_path / "plain", by_reference(tokenizer=bpe), small())
    options = by_reference(tokenizer=bpe, dedup="exact")
    report = tokens_to_shards(source, tmp_path / "out", options, small())

    read = [*texts[:20], texts[4], "", texts[5] + " ", *texts[10:], texts[39]]
    first = {text: index for index, text in reversed(list(enumerate(read)))}
    expected = sorted(first.values())
    before = documents_of(tmp_path / "plain")
    assert documents_of(tmp_path / "out") == [before[index] for index in expected]
    tallies = tallies_of(tmp_path / "out")
    assert tallies["duplicates"] == (len(read) - len(expected),)
    assert tallies["documents"] == (len(expected),)
    assert tallies["text_nbytes"] == (sum(len(read[i].encode()) for i in expected),)
    assert report.tallies["duplicates"] == tallies["duplicates"]
    line = f"duplicates left out: {len(read) - len(expected)}; documents kept: {len(expected)}"
    assert line in report.to_text()
    again = tokens_to_shards(source, tmp_path / "out", options, small())
    assert again.to_text().startswith("nothing to do")
    assert line in again.to_text()


def test_a_document_of_an_earlier_split_is_left_out_of_a_later_one(
    bpe: str, tmp_path: Path
) -> None:
    source = tmp_path / "texts"
    texts = texts_of(30)
    write_lines(source / "test" / "a.jsonl", texts)
    write_lines(source / "train" / "a.jsonl", texts[:10])
    write_lines(source / "validation" / "a.jsonl", texts[5:20])
    options = by_reference(tokenizer=bpe, dedup="exact", shuffle_documents=1)
    tokens_to_shards(source, tmp_path / "out", options, small())

    splits = read_manifest(tmp_path / "out").splits
    assert {name: split.count for name, split in splits.items()} == {
        "train": 10,
        "validation": 10,
        "test": 10,
    }
    left_out = {name: split.tallies["duplicates"] for name, split in splits.items()}
    assert left_out == {"train": (0,), "validation": (5,), "test": (20,)}


def test_a_split_whose_documents_are_all_left_out_is_empty(bpe: str, tmp_path: Path) -> None:
    source = tmp_path / "texts"
    write_lines(source / "train" / "a.jsonl", texts_of(8))
    write_lines(source / "validation" / "a.jsonl", texts_of(8)[:4])
    options = by_reference(tokenizer=bpe, dedup="exact")
    tokens_to_shards(source, tmp_path / "out", options, small())

    validation = read_manifest(tmp_path / "out").splits["validation"]
    assert validation.count == 0
    assert validation.tallies["duplicates"] == (4,)
    assert len(open_tokens(tmp_path / "out", "validation").documents()) == 0


def test_shares_of_the_documents_stay_in_their_splits(bpe: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "texts.jsonl", texts_of(80))
    shares: dict[str, Any] = {"tokenizer": bpe, "validation": 0.3, "test": 0.2}
    tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / "plain", by_reference(**shares), small())
    options = by_reference(**shares, shuffle_documents=0, dedup="exact")
    tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / "out", options, small())

    for split in ("train", "validation", "test"):
        before, after = (documents_of(tmp_path / name, split) for name in ("plain", "out"))
        assert sorted(after) == sorted(before)
        assert after != before


def test_records_that_cannot_be_read_are_listed_as_in_the_order_of_the_input(
    bpe: str, tmp_path: Path
) -> None:
    source = tmp_path / "texts"
    write_lines(source / "a.jsonl", texts_of(10))
    with (source / "a.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"text": \n{"other": 1}\n')
    write_lines(source / "b.jsonl", texts_of(10, seed=1))
    (source / "c.txt").write_bytes(b"\xff\xfe\xfd broken")
    plain = tokens_to_shards(source, tmp_path / "plain", by_reference(tokenizer=bpe), small())
    options = by_reference(tokenizer=bpe, shuffle_documents=0)
    report = tokens_to_shards(source, tmp_path / "out", options, small())

    assert list(report.skipped) == list(plain.skipped)
    assert len(report.skipped) >= 2
    listed = (tmp_path / "out" / "skipped.jsonl").read_bytes()
    assert listed == (tmp_path / "plain" / "skipped.jsonl").read_bytes()
    assert read_manifest(tmp_path / "out").skipped == len(report.skipped)


def test_pairs_are_shuffled_and_compared_as_one(tmp_path: Path) -> None:
    tokenizer = str(make_wordpiece(tmp_path / "wordpiece"))
    texts = ["the dog", "the fox", "the dog", "the dog"]
    others = ["a reader", "a reader", "a writer", "a reader"]
    write_lines(tmp_path / "texts.jsonl", texts, other=others)
    values: dict[str, Any] = {
        "tokenizer": tokenizer,
        "layout": "fixed",
        "length": 24,
        "text": TextOptions(pair_key="other"),
    }
    tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / "plain", by_reference(**values), small())
    options = by_reference(**values, dedup="exact")
    tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / "out", options, small())

    for name in ("tokens", "length", "pair_start"):
        before, after = (
            np.load(tmp_path / out / "train" / f"00000.{name}.npy") for out in ("plain", "out")
        )
        np.testing.assert_array_equal(after, before[:3])
    assert tallies_of(tmp_path / "out")["duplicates"] == (1,)


def plan_and_run(source: Path, out: Path, options: TokenOptions, run_options: RunOptions) -> Report:
    return run_tokens(plan_tokens(source, out, options, run_options), run_options)


def stopped_before_the_second_run(source: Path, out: Path, options: TokenOptions) -> None:
    """Run with a second run that is interrupted as it begins."""

    def interrupted(*_: Any) -> Report:
        raise KeyboardInterrupt

    plan = plan_tokens(source, out, options, small())
    with pytest.raises(KeyboardInterrupt):
        run_tokens(plan, small(), runner=interrupted)
    assert (first_folder(out) / "manifest.json").exists()


def test_a_first_run_that_has_finished_is_not_done_again(bpe: str, tmp_path: Path) -> None:
    source, out = tmp_path / "texts.jsonl", tmp_path / "out"
    write_lines(source, texts_of(20))
    options = by_reference(tokenizer=bpe, shuffle_documents=1)
    stopped_before_the_second_run(source, out, options)

    report = plan_and_run(source, out, options, small())

    assert not [note for note in report.notes if "were prepared in" in note]
    assert report.made == 20
    assert not first_folder(out).exists()


def test_documents_of_a_run_with_other_options_are_refused_by_name_and_overwritten_on_demand(
    bpe: str, tmp_path: Path
) -> None:
    source, out = tmp_path / "texts.jsonl", tmp_path / "out"
    write_lines(source, texts_of(20))
    other = by_reference(tokenizer=bpe, shuffle_documents=1)
    stopped_before_the_second_run(source, out, other)
    options = by_reference(tokenizer=bpe, shuffle_documents=2)

    with pytest.raises(OutputError, match=r"\.out\.first: .* prepared there for .*/out"):
        plan_and_run(source, out, options, small())

    plan_and_run(source, out, options, small(overwrite=True))
    tokens_to_shards(source, tmp_path / "whole", options, small())
    assert read_tree(out) == read_tree(tmp_path / "whole")
    assert not first_folder(out).exists()


def test_a_hidden_folder_of_somebody_else_is_refused_by_name_and_left_alone(
    bpe: str, tmp_path: Path
) -> None:
    source, out = tmp_path / "texts.jsonl", tmp_path / "out"
    write_lines(source, texts_of(20))
    mine = first_folder(out) / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine", encoding="utf-8")
    options = by_reference(tokenizer=bpe, dedup="exact")

    with pytest.raises(OutputError, match=r"\.out\.first: not empty \(holds 'mine.txt'\)"):
        plan_and_run(source, out, options, small())

    assert mine.read_text(encoding="utf-8") == "mine"
    assert not out.exists()


def test_what_a_finished_dataset_has_beside_it_is_removed_by_the_same_command(
    bpe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "texts.jsonl", tmp_path / "out"
    write_lines(source, texts_of(20))
    options = by_reference(tokenizer=bpe, dedup="exact")
    with monkeypatch.context() as patch:
        patch.setattr("preprocess.tokens.reorder._removed", lambda first: ())
        plan_and_run(source, out, options, small())
    assert first_folder(out).exists()

    report = plan_and_run(source, out, options, small())

    assert "nothing to do" in report.to_text()
    assert not first_folder(out).exists()


def test_a_source_of_nothing_leaves_no_folder(bpe: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "texts.jsonl", ["", ""])
    options = by_reference(tokenizer=bpe, dedup="exact")

    with pytest.raises(SourceError, match="all 2 documents are empty"):
        tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / "out", options, small())

    assert [path.name for path in tmp_path.iterdir()] == ["texts.jsonl"]


def test_the_command_shuffles_and_says_what_it_left_out(bpe: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "texts.jsonl", [*texts_of(20), *texts_of(20)[:5]])
    words = ["tokens", str(tmp_path / "texts.jsonl"), str(tmp_path / "out"), "--tokenizer", bpe]
    words += ["--shuffle-documents", "7", "--dedup", "exact"]

    planned = CliRunner().invoke(prep, [*words, "--dry-run"])
    done = CliRunner().invoke(prep, words)

    assert planned.exit_code == 0, planned.output
    assert done.exit_code == 0, done.output
    assert "duplicates left out: 5; documents kept: 20" in done.output
    recipe = read_manifest(tmp_path / "out").recipe
    assert (recipe["shuffle_documents"], recipe["dedup"]) == (7, "exact")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shuffle_documents": -1}, "shuffle_documents=-1: expected 0 or more"),
        ({"dedup": "fuzzy"}, "dedup='fuzzy': expected"),
        ({"dedup_threshold": 0.5}, "dedup_threshold=0.5: only with dedup='minhash'"),
        ({"dedup": "minhash", "dedup_threshold": 1.5}, "dedup_threshold=1.5: expected above 0"),
    ],
)
def test_options_outside_their_range_are_refused_by_name(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TokenOptions(tokenizer="any", **changes)


def test_chats_keep_their_masks(bpe: str, tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
    )
    tokenizer = tmp_path / "bpe"
    shutil.copytree(bpe, tokenizer)
    config = json.loads((tokenizer / "tokenizer_config.json").read_text(encoding="utf-8"))
    text = json.dumps({**config, "chat_template": template})
    (tokenizer / "tokenizer_config.json").write_text(text, encoding="utf-8")
    turns = [
        [{"role": "user", "content": f"ask {i}"}, {"role": "assistant", "content": f"say {i}"}]
        for i in [0, 1, 2, 3, 4, 5, 1, 2]
    ]
    lines = [json.dumps({"messages": messages}) for messages in turns]
    lines.insert(3, json.dumps({"messages": []}))
    (tmp_path / "chats.jsonl").write_text("\n".join(lines), encoding="utf-8")
    chat = TextOptions(text_key="messages", json_values=True)
    values: dict[str, Any] = {"tokenizer": str(tokenizer), "layout": "chat", "text": chat}
    tokens_to_shards(tmp_path / "chats.jsonl", tmp_path / "plain", by_reference(**values), small())
    options = by_reference(**values, dedup="exact", shuffle_documents=2)
    report = tokens_to_shards(tmp_path / "chats.jsonl", tmp_path / "out", options, small())

    before, after = (
        sorted(
            zip(
                field_of(tmp_path / name, "key"),
                field_of(tmp_path / name, "tokens"),
                field_of(tmp_path / name, "loss_mask"),
                strict=True,
            )
        )
        for name in ("plain", "out")
    )
    assert len(report.skipped) == 1
    assert len(after) == 6
    assert set(after) < set(before)
    assert len({tokens for _, tokens, _ in after}) == 6
    learned = [np.unpackbits(np.frombuffer(mask, np.uint8)).sum() for *_, mask in after]
    assert tallies_of(tmp_path / "out")["learned"] == (sum(learned),)
