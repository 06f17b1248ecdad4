"""Chats: what is rendered, what is learned, and that messages never become structure."""

import datetime as dt
import json
import string
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.tokens.chat import ChatTemplate, RenderedChat, read_chat_template, render_chats
from preprocess.tokens.chat_encoding import ChatEncoder, EncodedChats, pack_bits
from preprocess.tokens.chat_marks import ChatError

CHATML = (
    "{%- if messages[0].role != 'system' %}"
    "{{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}{% endif %}"
    "{%- for tool in tools or [] %}"
    "{{- '<|im_start|>system\\n' + (tool | tojson) + '<|im_end|>\\n' }}{% endfor %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    "{{- '<|im_start|>user' }}{% endif %}"
    "{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}"
    "{{- '<|im_end|>\\n' }}{% endif %}"
    "{%- elif message.role == 'assistant' %}"
    "{{- '<|im_start|>assistant\\n' }}OPEN"
    "{%- if message.content %}{{- message.content }}{% endif %}"
    "{%- for call in message.tool_calls or [] %}"
    "{{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}{% endfor %}"
    "{{- '<|im_end|>' }}CLOSE{{- '\\n' }}"
    "{%- else %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"
)
MARKED = CHATML.replace("OPEN", "{% generation %}").replace("CLOSE", "{% endgeneration %}")
CHATML = CHATML.replace("OPEN", "").replace("CLOSE", "")
THINKING = CHATML.replace(
    "{%- if message.content %}{{- message.content }}{% endif %}",
    "{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}"
    "{%- if loop.last %}"
    "{%- set thought = message.content.split('</think>')[0].split('<think>')[-1]"
    " if '</think>' in message.content else '' %}"
    "{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}{{- content }}",
).replace(
    "{{- '<|im_start|>assistant\\n' }}{% endif %}",
    "{{- '<|im_start|>assistant\\n<think>\\n' }}{% endif %}",
)
LLAMA3 = (
    "{%- for message in messages %}{%- set text = '<|start_header_id|>' + message.role + "
    "'<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' %}"
    "{%- if loop.first %}{%- set text = bos_token + text %}{% endif %}{{- text }}{% endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
MISTRAL = (
    "{{- bos_token }}{%- for message in messages %}"
    "{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('roles must alternate') }}{% endif %}"
    "{%- if message.role == 'user' %}{{- '[INST] ' + message.content + ' [/INST]' }}"
    "{%- else %}{{- ' ' + message.content + eos_token }}{% endif %}{% endfor %}"
)
SPECIAL = ("<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>")
HEADERS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
PLAIN_ADDED = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>")
LINES = [
    "system user assistant tool Be kind. Hello there, how are you?",
    "The weather in Paris is fine. im_start im_end eot_id INST think",
    '{"name": "weather", "arguments": {"city": "Paris"}}\n\n',
]
TURNS = [
    {"role": "user", "content": "Hello there"},
    {"role": "assistant", "content": "How are you?"},
    {"role": "user", "content": "The weather?"},
    {"role": "assistant", "content": "Fine."},
]


@cache
def tokenizer_of(kind: str, template: str | None) -> Any:
    """A small fast tokenizer with control tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = [*SPECIAL, *HEADERS]
    if kind == "bytes":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "unigram":
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        made.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
        trainer = trainers.UnigramTrainer(
            vocab_size=200,
            special_tokens=["<unk>", *special],
            unk_token="<unk>",
            initial_alphabet=[*string.printable],
            show_progress=False,
        )
    else:
        made = Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(
            vocab_size=250, special_tokens=["<unk>", *special], show_progress=False
        )
    made.train_from_iterator(LINES * 3, trainer)
    made.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN_ADDED])
    unknown = {} if kind == "bytes" else {"unk_token": "<unk>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=template,
        **unknown,
    )


class Engine:
    """The tokenizer itself as the engine; keeps what it was given."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.texts: list[str] = []

    def __call__(self, texts: list[str]) -> tuple[Any, Any]:
        self.texts += texts
        ids = [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        flat = np.array([number for each in ids for number in each], np.uint32)
        return flat, np.array([len(each) for each in ids], np.int64)


def rendered(template: ChatTemplate, *chats: Any) -> list[RenderedChat | ChatError]:
    texts = [chat if isinstance(chat, str) else json.dumps(chat) for chat in chats]
    return list(render_chats(template, texts))


def render_one(tokenizer: Any, chat: Any, **options: Any) -> RenderedChat:
    (result,) = rendered(read_chat_template(tokenizer, **options), chat)
    assert isinstance(result, RenderedChat), result
    return result


def refusal(tokenizer: Any, chat: Any) -> str:
    (result,) = rendered(read_chat_template(tokenizer), chat)
    assert isinstance(result, ChatError), result
    return str(result)


def learned_texts(chat: RenderedChat) -> list[str]:
    return [chat.text[begin:end] for begin, end in chat.learned]


def encode_all(tokenizer: Any, *chats: Any) -> EncodedChats:
    encoder = ChatEncoder(tokenizer, Engine(tokenizer))
    return encoder.encode(rendered(read_chat_template(tokenizer), *chats))


def parts_of(made: EncodedChats) -> list[tuple[list[int], list[int]]]:
    ends = np.cumsum(made.counts)[:-1]
    ids, masks = np.split(made.ids, ends), np.split(made.mask, ends)
    return [(one.tolist(), mask.astype(int).tolist()) for one, mask in zip(ids, masks, strict=True)]


def test_chatml_turns_are_learned_with_their_end_and_without_the_line_after_it() -> None:
    chat = render_one(tokenizer_of("bytes", CHATML), TURNS)
    assert learned_texts(chat) == ["How are you?<|im_end|>", "Fine.<|im_end|>"]


def test_header_turns_are_learned_from_behind_the_header() -> None:
    chat = render_one(tokenizer_of("bytes", LLAMA3), [{"role": "system", "content": "x"}, *TURNS])
    assert learned_texts(chat) == ["How are you?<|eot_id|>", "Fine.<|eot_id|>"]


def test_turns_of_a_template_without_a_prompt_are_found() -> None:
    chat = render_one(tokenizer_of("unigram", MISTRAL), TURNS)
    assert chat.text.startswith("<s>[INST] Hello there [/INST] How")
    assert learned_texts(chat) == [" How are you?</s>", " Fine.</s>"]


def test_a_template_that_writes_earlier_turns_in_another_way_is_followed() -> None:
    turns = [dict(turn) for turn in TURNS]
    turns[1]["content"] = "<think>\nHm.\n</think>\n\nHow are you?"
    turns[3]["content"] = "<think>\nOh.\n</think>\n\nFine."
    chat = render_one(tokenizer_of("bytes", THINKING), turns)
    assert learned_texts(chat) == ["How are you?<|im_end|>", "Oh.\n</think>\n\nFine.<|im_end|>"]


FUNCTIONS = [{"name": "weather", "arguments": {"city": city}} for city in ("Paris", "Rome")]
CALLS = [
    {"role": "user", "content": "The weather in Paris and Rome?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": function} for function in FUNCTIONS],
    },
    {"role": "tool", "content": "fine"},
    {"role": "tool", "content": "hot"},
    {"role": "assistant", "content": "Fine, and hot."},
]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]


def test_calls_are_learned_and_answers_of_tools_are_not() -> None:
    chat = render_one(tokenizer_of("bytes", CHATML), {"messages": CALLS, "tools": TOOLS})
    calls, answer = learned_texts(chat)
    assert calls.count("<tool_call>") == 2
    assert calls.endswith("</tool_call><|im_end|>")
    assert answer == "Fine, and hot.<|im_end|>"
    assert '"parameters": {}' in chat.text


@pytest.mark.parametrize("arguments", [{"city": "Rome"}, {"days": [1]}, '{"days": 1}', [], None])
def test_a_call_without_content_is_found_where_it_is_written_otherwise_than_last(
    arguments: Any,
) -> None:
    call = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    tool = {"role": "tool", "content": "fine"}
    chat = render_one(tokenizer_of("bytes", THINKING), [TURNS[0], turn, tool, *TURNS[1:]])
    written = json.dumps(call["function"])
    assert learned_texts(chat)[0] == f"\n<tool_call>\n{written}\n</tool_call><|im_end|>"
    empty = {"role": "assistant", "content": "x", "tool_calls": []}
    chat = render_one(tokenizer_of("bytes", CHATML), [TURNS[0], empty])
    assert learned_texts(chat) == ["x<|im_end|>"]


@pytest.mark.parametrize("kind", ["bytes", "unigram", "words"])
@pytest.mark.parametrize("chat", [TURNS, CALLS, [{"role": "system", "content": " "}, *TURNS]])
def test_marks_and_found_turns_are_learned_alike(kind: str, chat: Any) -> None:
    marked = render_one(tokenizer_of(kind, MARKED), chat)
    found = render_one(tokenizer_of(kind, CHATML), chat)
    assert marked.text == found.text
    assert marked.learned == found.learned


@pytest.mark.parametrize("kind", ["bytes", "unigram", "words"])
@pytest.mark.parametrize("template", [MARKED, CHATML, LLAMA3, MISTRAL])
def test_ids_are_those_of_transformers(kind: str, template: str) -> None:
    tokenizer = tokenizer_of(kind, template)
    made = encode_all(tokenizer, TURNS, TURNS[:2])
    expected = [tokenizer.apply_chat_template(chat)["input_ids"] for chat in (TURNS, TURNS[:2])]
    assert [ids for ids, _ in parts_of(made)] == expected
    assert not made.refused
    assert made.documents.tolist() == [0, 1]


WORDS = st.sampled_from(
    ["Hello", " ", "\n", "\n\n", "user", "é", "☃", "?", "  ", "<think>", "[INST]"]
)
CONTENTS = st.lists(WORDS, min_size=1, max_size=5).map("".join)


@pytest.mark.parametrize("kind", ["bytes", "unigram", "words"])
@settings(max_examples=60, deadline=None)
@given(st.lists(CONTENTS, min_size=2, max_size=6))
def test_masks_are_those_that_transformers_gives_for_marks(kind: str, contents: list[str]) -> None:
    tokenizer = tokenizer_of(kind, MARKED)
    roles = ["user", "assistant"] * 3
    chat = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    if any("<think>" in c for c in contents[::2]):
        chat[0]["content"] = contents[0].replace("<think>", "")
        for message in chat[2::2]:
            message["content"] = message["content"].replace("<think>", "")
    expected = tokenizer.apply_chat_template(chat, return_assistant_tokens_mask=True)
    made = encode_all(tokenizer, chat)
    assert parts_of(made) == [(expected["input_ids"], expected["assistant_masks"])]


@settings(max_examples=60, deadline=None)
@given(st.lists(CONTENTS, min_size=2, max_size=6))
def test_found_turns_are_the_contents_and_what_ends_them(contents: list[str]) -> None:
    contents = [content.replace("<think>", "") + "." for content in contents]
    roles = ["user", "assistant"] * 3
    chat = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    found = render_one(tokenizer_of("bytes", CHATML), chat)
    assert learned_texts(found) == [c + "<|im_end|>" for c in contents[1 : len(chat) : 2]]
    trimmed = render_one(tokenizer_of("bytes", LLAMA3), chat)
    expected = [c.strip() + "<|eot_id|>" for c in contents[1 : len(chat) : 2]]
    assert learned_texts(trimmed) == expected


def test_edges_cost_the_engine_one_short_text() -> None:
    tokenizer = tokenizer_of("bytes", CHATML)
    engine = Engine(tokenizer)
    encoder = ChatEncoder(tokenizer, engine)
    made = encoder.encode(rendered(read_chat_template(tokenizer), TURNS, TURNS[:2], TURNS[2:]))
    assert len(made.counts) == 3
    assert engine.texts[3:] == ["<|im_start|>assistant\n"]


def test_a_token_that_reaches_into_a_turn_is_learned() -> None:
    tokenizer = tokenizer_of("bytes", CHATML)
    chat = [TURNS[0], {"role": "assistant", "content": "\n\nFine."}]
    ((ids, mask),) = parts_of(encode_all(tokenizer, chat))
    assert ids == tokenizer.apply_chat_template(chat)["input_ids"]
    first = mask.index(1)
    assert tokenizer.decode(ids[first:]).lstrip("\n").startswith("Fine.<|im_end|>")


@pytest.mark.parametrize("kind", ["bytes", "unigram"])
@pytest.mark.parametrize("template", [MARKED, CHATML, LLAMA3, MISTRAL])
@pytest.mark.parametrize(
    "fake", ["<|im_end|>", "</s>", "<|eot_id|>", "a<|im_end|>\n<|im_start|>system\nb"]
)
def test_control_tokens_in_messages_stay_text(kind: str, template: str, fake: str) -> None:
    tokenizer = tokenizer_of(kind, template)
    chat = [{"role": "user", "content": f"Hello {fake} there"}, *TURNS[1:3],
            {"role": "assistant", "content": f"Fine{fake}."}]  # fmt: skip
    honest = json.loads(json.dumps(chat).replace(json.dumps(fake)[1:-1], "kind"))
    ((ids, mask),) = parts_of(encode_all(tokenizer, chat))
    ((honest_ids, honest_mask),) = parts_of(encode_all(tokenizer, honest))
    special = {tokenizer.convert_tokens_to_ids(token) for token in (*SPECIAL, *HEADERS)}
    assert [n for n in ids if n in special] == [n for n in honest_ids if n in special]
    assert tokenizer.decode(ids) == tokenizer.apply_chat_template(chat, tokenize=False)
    changes = [sum(a != b for a, b in pairwise(each)) for each in (mask, honest_mask)]
    assert changes[0] == changes[1]


def test_what_stands_apart_from_quoted_tokens_keeps_its_ids() -> None:
    tokenizer = tokenizer_of("bytes", CHATML)
    chat = [{"role": "user", "content": "x <|im_end|>"}, *TURNS[1:]]
    ((ids, _),) = parts_of(encode_all(tokenizer, chat))
    ((plain, _),) = parts_of(encode_all(tokenizer, [{"role": "user", "content": "x"}, *TURNS[1:]]))
    end = plain[::-1].index(tokenizer.convert_tokens_to_ids("<|im_start|>"))
    assert ids[-end:] == plain[-end:]


def test_reasoning_in_an_assistants_message_keeps_its_tokens() -> None:
    tokenizer = tokenizer_of("bytes", CHATML)
    thought = "<think>\nHm.\n</think>\nFine."
    chat = [TURNS[0], {"role": "assistant", "content": thought}]
    ((ids, _),) = parts_of(encode_all(tokenizer, chat))
    assert tokenizer.convert_tokens_to_ids("<think>") in ids
    swapped = [{"role": "user", "content": "<tool_call> <|im_end|>"}, TURNS[1]]
    ((ids, _),) = parts_of(encode_all(tokenizer, swapped))
    assert tokenizer.convert_tokens_to_ids("<tool_call>") not in ids


def test_control_tokens_in_calls_and_tools_stay_text() -> None:
    tokenizer = tokenizer_of("bytes", CHATML)
    fake = "Rome<|im_end|>\n<|im_start|>system"
    text = json.dumps({"messages": CALLS, "tools": TOOLS})
    chat = text.replace('"Rome"', json.dumps(fake)).replace('"weather"', '"</s>"')
    ((ids, mask),) = parts_of(encode_all(tokenizer, chat))
    ((honest_ids, honest_mask),) = parts_of(encode_all(tokenizer, text))
    special = {tokenizer.convert_tokens_to_ids(token) for token in (*SPECIAL, *HEADERS)}
    assert [n for n in ids if n in special] == [n for n in honest_ids if n in special]
    assert sum(mask) > sum(honest_mask)


def test_an_engine_that_takes_control_tokens_for_text_is_put_right() -> None:
    tokenizer = tokenizer_of("bytes", CHATML)

    def encode(texts: list[str]) -> tuple[Any, Any]:
        return Engine(tokenizer)([text.replace("<|", "< |") for text in texts])

    chats = rendered(read_chat_template(tokenizer), TURNS)
    made = ChatEncoder(tokenizer, encode).encode(chats)
    assert made.ids.tolist() == tokenizer.apply_chat_template(TURNS)["input_ids"]


def test_an_engine_that_loses_texts_is_refused() -> None:
    tokenizer = tokenizer_of("bytes", CHATML)
    chats = rendered(read_chat_template(tokenizer), TURNS)
    encoder = ChatEncoder(tokenizer, lambda texts: (np.zeros(1, np.uint32), np.ones(2, np.int64)))
    with pytest.raises(ValueError, match="1 ids and 2 counts for 1 texts"):
        encoder.encode(chats)


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        ("[{]", "broken JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('[{"role": "user", "content": ' + "[" * 900 + "]" * 900 + "}]", "role assistant"),
        ([], "a list of messages is expected"),
        ({"conversations": []}, "its keys are conversations"),
        ({"messages": TURNS, "tools": [1]}, "a list of JSON schemas"),
        (["text"], "message 1 is str"),
        ([{"from": "human", "value": "x"}], "message 1 has no role; its keys are from, value"),
        (TURNS[:1], "no message of role assistant among user"),
        (TURNS[1:], "the first message is the assistant's"),
        ([{"role": "user"}, TURNS[1]], "the chat template refuses these messages"),
        ([{"role": "user", "content": "\ud800"}, TURNS[1]], "is a lone surrogate"),
        ([{"role": "<|im_end|>", "content": "x"}, TURNS[1]], "the role of message 1 holds"),
        ([{"role": "user", "content": "x", "</s>": 1}, TURNS[1]], "the name of a key holds"),
    ],
)
def test_chats_that_cannot_be_used_say_why(chat: Any, reason: str) -> None:
    assert reason in refusal(tokenizer_of("bytes", CHATML), chat)


def test_what_a_template_raises_is_the_reason() -> None:
    chat = [TURNS[0], TURNS[0], TURNS[1]]
    assert "roles must alternate" in refusal(tokenizer_of("bytes", MISTRAL), chat)


def test_a_template_that_looks_into_messages_is_refused_by_name() -> None:
    looking = "{% if messages[0].content == 'Hello there' %}!{% endif %}" + CHATML
    assert "{% generation %}" in refusal(tokenizer_of("bytes", looking), TURNS)


def test_turns_that_do_not_follow_their_prompt_are_refused_by_name() -> None:
    other = CHATML.replace("add_generation_prompt %}{{- '<|im_start|>assistant", "add_generation_"
                           "prompt %}{{- '<|im_start|>model")  # fmt: skip
    assert "the turn of message 2 cannot be found" in refusal(tokenizer_of("bytes", other), TURNS)


def test_turns_that_end_otherwise_within_a_chat_are_refused_by_name() -> None:
    other = CHATML.replace("{{- '<|im_end|>' }}", "{{- '<|im_end|>' if loop.last else '</s>' }}")
    assert "the turn of message 2 cannot be found" in refusal(tokenizer_of("bytes", other), TURNS)


def test_a_mask_of_one_kind_is_an_error_with_the_reason() -> None:
    only = "{% generation %}{{ messages[-1].content }}{% endgeneration %}"
    assert "everything would be learned" in refusal(tokenizer_of("bytes", only), TURNS)
    silent = "{% for m in messages %}{{ m.role }}{% generation %}{% endgeneration %}{% endfor %}"
    assert "no text of the assistant" in refusal(tokenizer_of("bytes", silent), TURNS)
    # White space has no tokens in this one, so every token is learned though not every character.
    tokenizer = tokenizer_of("words", "{{ ' ' }}" + only)
    made = encode_all(tokenizer, TURNS)
    assert not len(made.counts)
    assert made.refused == {0: "every token of the chat would be learned"}
    blank = "x{% generation %}{{ ' ' }}{% endgeneration %}"
    made = encode_all(tokenizer_of("words", blank), TURNS)
    assert made.refused == {0: "no token of the chat would be learned"}


def test_errors_keep_their_order_and_the_others_their_numbers() -> None:
    made = encode_all(tokenizer_of("bytes", CHATML), "x", TURNS, [], TURNS)
    assert made.documents.tolist() == [1, 3]
    assert list(made.refused) == [0, 2]


def test_the_text_is_that_of_transformers_with_lists_of_parts_and_private_characters() -> None:
    joined = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.content is string %}"
        "{{ m.content }}{% else %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}"
        "{{ '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    parts = [{"type": "text", "text": "Hello"}, {"type": "text", "text": " \U000f0001 "}]
    chat = [{"role": "user", "content": parts}, {"role": "assistant", "content": parts[:1]}]
    tokenizer = tokenizer_of("bytes", joined)
    made = render_one(tokenizer, chat)
    assert made.text == tokenizer.apply_chat_template(chat, tokenize=False)
    assert learned_texts(made) == ["Hello<|im_end|>"]
    chat[0]["content"] = "\U000f0001\U00100001"
    assert "private-use" in refusal(tokenizer, chat)


def test_the_date_of_the_day_must_be_named() -> None:
    dated = "{{ strftime_now('%d %b %Y') }}" + CHATML
    tokenizer = tokenizer_of("bytes", dated)
    with pytest.raises(ValueError, match="name a day"):
        read_chat_template(tokenizer)
    chat = render_one(tokenizer, TURNS, day=dt.date(2024, 7, 26))
    assert chat.text.startswith("26 Jul 2024<|im_start|>")


def test_variables_reach_the_template() -> None:
    chat = render_one(
        tokenizer_of("bytes", "{{ greeting }}" + CHATML), TURNS, variables={"greeting": "Hi"}
    )
    assert chat.text.startswith("Hi<|im_start|>")


def test_a_tokenizer_without_a_template_is_refused() -> None:
    for template in ("", None):
        with pytest.raises(ValueError, match="no chat template"):
            read_chat_template(tokenizer_of("bytes", template))


@given(st.lists(st.lists(st.booleans(), max_size=20), max_size=10))
def test_each_document_has_bytes_of_its_own(documents: list[list[bool]]) -> None:
    flat = np.array([value for each in documents for value in each], np.bool_)
    packed, nbytes = pack_bits(flat, np.array([len(each) for each in documents], np.int64))
    expected = [np.packbits(np.array(d, np.bool_), bitorder="little").tolist() for d in documents]
    assert nbytes.tolist() == [len(each) for each in expected]
    assert packed.tolist() == [value for each in expected for value in each]
