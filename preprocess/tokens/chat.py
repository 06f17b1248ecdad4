"""Chats: messages and a tokenizer's chat template become a text, and the parts to be learned.

A model learns what it will have to write: the assistant's turns, each from behind the prompt that
asks for it to its end of turn. Templates with `{% generation %}` marks say where that is; for the
others it is found (`preprocess.tokens.chat_turns`). What messages hold is never taken for
structure: text in them that looks like a control token is noted as `quoted`, and stays text when it
is encoded (`preprocess.tokens.chat_encoding`).
"""

import datetime as dt
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from preprocess.tokens.chat_marks import ChatError, Marks, Span, mark_messages, read_marked
from preprocess.tokens.chat_turns import find_turns

_GENERATION: Final = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_TODAY: Final = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")

# What expressions in a template raise when messages are not what it expects.
_TEMPLATE_ERRORS: Final = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedChat:
    """A chat as one text.

    Attributes:
        text: What the template writes, control tokens included.
        learned: [begin, end) characters of the parts to be learned, in order, apart.
        quoted: [begin, end) characters of control tokens that came with a message: mere text.
    """

    text: str
    learned: tuple[Span, ...]
    quoted: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """A tokenizer's chat template, ready for use; made by `read_chat_template`.

    Attributes:
        texts: The Jinja template, without tools and with tools.
        variables: What the template can read beside the messages.
        tokens: Added tokens of the tokenizer: whether each is special.
    """

    texts: tuple[str, str]
    variables: Mapping[str, Any]
    tokens: Mapping[str, bool]
    _patterns: dict[bool, re.Pattern[str]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare the search for control tokens."""
        # Structure is every special token, and those others that the template itself writes.
        # A model may write the latter too: `<think>` in an assistant's message is a token.
        special = [token for token, is_special in self.tokens.items() if is_special]
        written = [
            token
            for token in self.tokens
            if not token.isspace() and any(token in text for text in self.texts)
        ]
        patterns = {True: any_of(special), False: any_of({*special, *written})}
        object.__setattr__(self, "_patterns", patterns)

    def control_tokens(self, *, assistant: bool) -> re.Pattern[str]:
        """Return what finds control tokens in a message of the assistant, or of anyone else."""
        return self._patterns[assistant]

    def render(
        self, messages: Sequence[Any], tools: Sequence[Any] | None, *, prompt: bool = False
    ) -> tuple[str, list[Span]]:
        """Render messages as transformers does.

        Args:
            messages: At least one.
            tools: JSON schemas of tools.
            prompt: Whether to go on with the prompt for the assistant's answer.

        Returns:
            The text, and the spans inside `{% generation %}` marks.

        Raises:
            ChatError: The template refuses the messages.
        """
        from jinja2 import TemplateError
        from transformers.utils.chat_template_utils import render_jinja_template

        text = self.texts[tools is not None]
        render: Any = render_jinja_template
        try:
            texts, spans = render(
                conversations=[list(messages)],
                tools=None if tools is None else list(tools),
                chat_template=text,
                return_assistant_tokens_mask=has_marks(text),
                add_generation_prompt=prompt,
                **self.variables,
            )
        except (TemplateError, *_TEMPLATE_ERRORS) as error:
            raise ChatError(f"the chat template refuses these messages: {error}") from error
        return texts[0], [(begin, end) for begin, end in spans[0]] if spans else []


def any_of(tokens: Sequence[str] | set[str]) -> re.Pattern[str]:
    """Return what finds any of these strings, the longest where several begin."""
    ordered = sorted(tokens, key=lambda token: (-len(token), token))
    return re.compile("|".join(map(re.escape, ordered)) or r"(?!)")


def has_marks(template: str) -> bool:
    """Say whether a template marks what the assistant writes."""
    return _GENERATION.search(template) is not None


def read_chat_template(
    tokenizer: Any,
    *,
    variables: Mapping[str, Any] | None = None,
    day: dt.date | None = None,
) -> ChatTemplate:
    """Read the chat template of a tokenizer.

    Args:
        tokenizer: A fast tokenizer of transformers.
        variables: Further variables of the template, such as `enable_thinking`.
        day: What a template that writes the date of the day writes instead.

    Raises:
        ValueError: The tokenizer has no chat template, or the template writes the date of the day
            and none is given: the same run would give other bytes tomorrow.
    """
    try:
        texts: list[str] = [
            tokenizer.get_chat_template(),
            tokenizer.get_chat_template(tools=[{}]),
        ]
    except ValueError as error:
        raise ValueError(
            f"the tokenizer has no chat template that can be used: {error}; "
            "add chat_template.jinja to its folder"
        ) from error
    if not all(texts):
        raise ValueError("the tokenizer has no chat template: its text is empty")
    if day is not None:
        written = functools.partial(_written_day, day)
        texts = [_TODAY.sub(written, text) for text in texts]
    if any("strftime_now(" in text for text in texts):
        raise ValueError(
            "the chat template writes the date of the day (strftime_now), so the same run would "
            "give other data tomorrow: name a day"
        )
    added = tokenizer.added_tokens_decoder.values()
    return ChatTemplate(
        texts=(texts[0], texts[1]),
        variables={**tokenizer.special_tokens_map, **(variables or {})},
        tokens={token.content: bool(token.special) for token in added},
    )


def _written_day(day: dt.date, call: re.Match[str]) -> str:
    """Write what a template's call for the date of the day gives, as a Jinja string."""
    return json.dumps(day.strftime(call[2]))


def render_chats(
    template: ChatTemplate, messages_json: Sequence[str]
) -> Iterator[RenderedChat | ChatError]:
    """Render chats, one result for each, in order.

    Args:
        template: From `read_chat_template`.
        messages_json: JSON of each chat: a list of messages `{"role": ..., "content": ...}` with
            whatever else the template reads, or an object with `messages` and, if any, `tools`.
            A null is as good as a missing key.

    Yields:
        The chat, or why it cannot be used: broken JSON, messages that the template refuses, turns
        that cannot be found, nothing to be learned.
    """
    for text in messages_json:
        try:
            yield _render_chat(template, text)
        except ChatError as error:
            yield ChatError(str(error))  # a new one: the other holds what its frames have read
        except RecursionError:
            yield ChatError("the messages are nested too deeply")


def _render_chat(template: ChatTemplate, text: str) -> RenderedChat:
    messages, tools = _read_messages(text)
    if not any(message["role"] == "assistant" for message in messages):
        roles = ", ".join(sorted({message["role"] for message in messages}))
        raise ChatError(f"nothing to learn: no message of role assistant among {roles}")
    plain, learned = template.render(messages, tools)
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        raise ChatError(f"character {error.start} of the chat is a lone surrogate") from error
    marked_template = has_marks(template.texts[tools is not None])
    marks = Marks.beside(plain, len(messages))
    # Where a template has marks of its own, only control tokens need ours.
    marked, marked_tools, found = mark_messages(
        messages, tools, marks, template.control_tokens, ends=not marked_template
    )
    quoted: tuple[Span, ...] = ()
    if found or not marked_template:
        full, _ = template.render(marked, marked_tools)
        reading = read_marked(full, plain, marks)
        quoted = reading.quoted(template.control_tokens(assistant=False))
        if not marked_template:
            render = functools.partial(template.render, tools=marked_tools)
            learned = find_turns(marked, full, reading, render, template.control_tokens)
    learned = [span for span in learned if span[0] < span[1]]
    if not learned:
        raise ChatError("nothing to learn: the template writes no text of the assistant")
    if learned == [(0, len(plain))]:
        raise ChatError("everything would be learned: the template writes the assistant alone")
    return RenderedChat(text=plain, learned=tuple(learned), quoted=quoted)


def _read_messages(text: str) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """Read the JSON of a chat; nulls in messages are left out, as transformers leaves them."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ChatError(f"broken JSON: {error}") from error
    tools = None
    if isinstance(value, dict):
        if "messages" not in value:
            raise ChatError(f"an object with messages is expected, its keys are {_named(value)}")
        value, tools = value["messages"], value.get("tools") or None
    if not isinstance(value, list) or not value:
        raise ChatError(f"a list of messages is expected, got {type(value).__name__} {text[:40]}")
    if tools is not None and not (
        isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)
    ):
        raise ChatError("tools: a list of JSON schemas is expected")
    messages = []
    for number, message in enumerate(value, 1):
        if not isinstance(message, dict):
            raise ChatError(f"message {number} is {type(message).__name__}, expected an object")
        if not isinstance(message.get("role"), str):
            raise ChatError(f"message {number} has no role; its keys are {_named(message)}")
        messages.append({name: part for name, part in message.items() if part is not None})
    return messages, tools


def _named(value: Mapping[str, Any]) -> str:
    return ", ".join(sorted(value)[:8]) or "none"
