"""Each layout in both containers, opened by the loaders, beside what `tokenizers` alone gives."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from loaders import open_tokens
from tests.token_commands import Alone, call, prepare, stored, write_jsonl
from tests.tokenizers_made import LINES, make_bpe, make_unigram, make_wordpiece

TEXTS = [*LINES[:9], "", "x", " ".join(LINES[:6])]
PAIRS = [*reversed(TEXTS)]
CONTAINERS = pytest.mark.parametrize("container", ["tensor", "zarr"])
ENCODERS = pytest.mark.parametrize("kind", ["wordpiece", "unigram"])


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tokenizers")
    made = {"bpe": make_bpe, "wordpiece": make_wordpiece, "unigram": make_unigram}
    return {name: make(folder / name) for name, make in made.items()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_jsonl(folder / "a.jsonl", TEXTS[:5], pair=PAIRS[:5])
    write_jsonl(folder / "b.jsonl", TEXTS[5:], pair=PAIRS[5:])
    return folder


def made(source: Path, out: Path, tokenizer: Path, *words: str) -> Path:
    result = prepare(source, out, tokenizer, "--shard-size", "300B", *words)
    assert result.exit_code == 0, result.stderr
    assert call("check", out, "--full").exit_code == 0
    return out


def rows(view: Any) -> list[dict[str, Any]]:
    return [
        {name: v.tolist() if isinstance(v, Tensor) else v for name, v in view[index].items()}
        for index in range(len(view))
    ]


@CONTAINERS
def test_a_stream_holds_each_document_with_its_end(
    tmp_path: Path, tokenizers: dict[str, Path], source: Path, container: str
) -> None:
    out = made(source, tmp_path / "out", tokenizers["bpe"], "--format", container)
    alone = Alone(tokenizers["bpe"])
    expected = [[*alone.ids(text), alone.id_of("<|endoftext|>")] for text in TEXTS]
    assert [ids for _, ids in stored(out)] == expected
    flat = [number for ids in expected for number in ids]
    blocks = rows(open_tokens(out).blocks(16))
    assert len(blocks) == (len(flat) - 1) // 16
    for index, block in enumerate(blocks):
        assert block["x"] == flat[16 * index :][:16]
        assert block["y"] == flat[16 * index + 1 :][:16]


def framed(alone: Alone, length: int, stride: int | None, pairs: bool) -> list[Any]:
    """Return the library's own rows: truncation, overflow, special tokens, pairs, padding."""
    tokenizer = alone.tokenizer
    pad = next(t for t in ("[PAD]", "<pad>") if alone.id_of(t) is not None)
    tokenizer.enable_truncation(length, stride=stride or 0, strategy="longest_first")
    tokenizer.enable_padding(length=length, pad_id=alone.id_of(pad), pad_token=pad)
    found = []
    for text, pair in zip(TEXTS, PAIRS, strict=True):
        first = tokenizer.encode(text, pair) if pairs else tokenizer.encode(text)
        found += [first, *(first.overflowing if stride is not None else ())]
    return found


@CONTAINERS
@ENCODERS
@pytest.mark.parametrize("stride", [None, 0, 3])
@pytest.mark.parametrize("pairs", [False, True])
def test_fixed_rows_are_those_of_the_library(
    tmp_path: Path,
    tokenizers: dict[str, Path],
    source: Path,
    container: str,
    kind: str,
    stride: int | None,
    pairs: bool,
) -> None:
    words = ["--format", container, "--layout", "fixed", "--length", "24"]
    words += [] if stride is None else ["--stride", str(stride)]
    words += ["--pair-key", "pair"] if pairs else []
    out = made(source, tmp_path / "out", tokenizers[kind], *words)
    expected = framed(Alone(tokenizers[kind]), 24, stride, pairs)
    found = rows(open_tokens(out).padded())
    assert [row["input_ids"] for row in found] == [one.ids for one in expected]
    masks = [list(map(bool, one.attention_mask)) for one in expected]
    assert [row["attention_mask"] for row in found] == masks
    if pairs and kind == "wordpiece":  # the other writes no types
        assert [row["token_type_ids"] for row in found] == [one.type_ids for one in expected]
    keys = [row["key"] for row in found]
    assert keys == sorted(keys, key=lambda key: (key[0], int(key.partition("@")[2])))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--length", "2"], "length 2 is too small: 2 special tokens and 1 of text need"),
        (["--length", "4", "--pair-key", "pair"], "3 special tokens and 2 of text need"),
        (["--length", "8", "--stride", "6"], "a row holds 6 tokens of a text that is cut"),
    ],
)
def test_rows_without_room_are_refused_before_anything_is_written(
    tmp_path: Path, tokenizers: dict[str, Path], source: Path, words: list[str], said: str
) -> None:
    words = ["--layout", "fixed", *words]
    for more in ([], ["--dry-run"]):
        result = prepare(source, tmp_path / "out", tokenizers["wordpiece"], *words, *more)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert said in result.stderr
        assert not (tmp_path / "out").exists()


@CONTAINERS
@pytest.mark.parametrize("packing", ["best_fit", "first_fit"])
@pytest.mark.parametrize("pad", [None, "x"])
def test_packed_rows_hold_every_document_once_and_say_where_each_is(
    tmp_path: Path,
    tokenizers: dict[str, Path],
    source: Path,
    container: str,
    packing: str,
    pad: str | None,
) -> None:
    words = ["--format", container, "--layout", "packed", "--length", "40", "--packing", packing]
    words += ["--pad", pad] if pad else []
    out = made(source, tmp_path / "out", tokenizers["bpe"], *words)
    alone = Alone(tokenizers["bpe"])
    expected: Counter[tuple[int, ...]] = Counter()
    for text in TEXTS:
        ids = [*alone.ids(text), alone.id_of("<|endoftext|>")]
        expected.update(tuple(ids[first : first + 40]) for first in range(0, len(ids), 40))
    found: Counter[tuple[int, ...]] = Counter()
    for row in rows(open_tokens(out).packed()):
        bounds = row["cu_seqlens"]
        assert (len(row["tokens"]), bounds[0], bounds[-1]) == (40, 0, 40)
        assert row["position_ids"] == [n for a, b in pairwise(bounds) for n in range(b - a)]
        padding = row["document_ids"].count(-1)
        assert row["tokens"][40 - padding :] == [alone.id_of(pad or "<|pad|>")] * padding
        assert max(row["document_ids"]) + 1 == len(row["key"])
        for first, end in pairwise(bounds):
            if row["document_ids"][first] >= 0:
                found[tuple(row["tokens"][first:end])] += 1
    assert found == expected


TEMPLATE = (
    "{% for message in messages %}<|endoftext|>{{ message.role }}: "
    "{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content }}<|pad|>{% endgeneration %}"
    "{% else %}{{ message.content }}<|pad|>{% endif %}{% endfor %}"
)
CHATS = [
    [("user", "one and two?"), ("assistant", "three")],
    [("system", "be brief"), ("user", "hi"), ("assistant", "yes"), ("user", "why <3"),
     ("assistant", "reading and writing")],
]  # fmt: skip


@CONTAINERS
def test_chats_are_those_of_transformers_with_the_answers_to_learn(
    tmp_path: Path, tokenizers: dict[str, Path], container: str
) -> None:
    from transformers import AutoTokenizer

    folder = make_bpe(tmp_path / "bpe")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    chats = [[{"role": role, "content": text} for role, text in chat] for chat in CHATS]
    lines = [json.dumps({"messages": chat}) for chat in chats]
    (tmp_path / "chats.jsonl").write_text("\n".join([lines[0], '{"messages": 1}', lines[1]]))
    words = ["--layout", "chat", "--format", container, "--max-skipped", "1"]
    out = made(tmp_path / "chats.jsonl", tmp_path / "out", folder, *words)
    pretrained = AutoTokenizer.from_pretrained(folder)
    found = rows(open_tokens(out).chat())
    assert len(found) == 2
    for row, chat in zip(found, chats, strict=True):
        expected = pretrained.apply_chat_template(
            chat, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        assert row["tokens"] == expected["input_ids"]
        pairs = zip(expected["input_ids"], expected["assistant_masks"], strict=True)
        assert row["labels"] == [number if learned else -100 for number, learned in pairs]
        assert 0 < sum(expected["assistant_masks"]) < len(row["tokens"])


@pytest.mark.parametrize("layout", ["stream", "fixed", "packed"])
def test_both_containers_serve_the_same(
    tmp_path: Path, tokenizers: dict[str, Path], source: Path, layout: str
) -> None:
    words = ["--layout", layout, *(["--length", "16"] if layout != "stream" else [])]
    served = []
    for container in ("tensor", "zarr"):
        out = made(
            source, tmp_path / container, tokenizers["wordpiece"], *words, "--format", container
        )
        opened = open_tokens(out)
        views = {"stream": opened.documents, "fixed": opened.padded, "packed": opened.packed}
        served.append(rows(views[layout]()))
    assert served[0] == served[1]
