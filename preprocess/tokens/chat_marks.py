"""Marks in messages that come out again in the rendered chat: they say which text came from where.

Rendering is done twice, with and without marks, and both must agree when the marks are taken out:
a template that looks into its messages in a way that marks disturb is refused, not misread.
A mark is a private-use character that the chat does not hold.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

Span = tuple[int, int]
"""[begin, end) characters."""

# The two supplementary private use areas, without their last two code points.
# Source: The Unicode Standard, 23.5 Private-Use Characters.
_AREAS: Final = (0xF0000, 0x100000)
_AREA_SIZE: Final = 0xFFFE


class ChatError(Exception):
    """Why one chat cannot be used, in one line."""


class ControlTokens(Protocol):
    """What finds control tokens in a message of the assistant, or of anyone else."""

    def __call__(self, *, assistant: bool) -> re.Pattern[str]:
        """Return the pattern."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters that mark.

    Attributes:
        quote: Stands behind the first character of a control token that came with a message.
        ends: Two for each message, which stand behind the last visible character of its content
            and behind the last text of its last call.
        pattern: Finds any of them.
    """

    quote: str
    ends: str
    pattern: re.Pattern[str]

    @classmethod
    def beside(cls, plain: str, count: int) -> "Marks":
        """Choose marks for so many messages that a text does not hold.

        Raises:
            ChatError: There are none.
        """
        if 2 * count >= _AREA_SIZE:
            raise ChatError(f"{count:,} messages, expected fewer than {_AREA_SIZE // 2:,}")
        for first in _AREAS:
            pattern = re.compile(f"[{chr(first)}-{chr(first + 2 * count)}]")
            if not pattern.search(plain):
                ends = "".join(map(chr, range(first + 1, first + 1 + 2 * count)))
                return cls(chr(first), ends, pattern)
        raise ChatError("the chat holds private-use characters of both supplementary areas")


@dataclass(frozen=True, slots=True)
class Reading:
    """A rendering with marks, and where they stand.

    Attributes:
        plain: The text without marks.
        marks: What was looked for.
        places: Every mark in the marked text: its place and the character.
    """

    plain: str
    marks: Marks
    places: tuple[tuple[int, str], ...]

    def plain_place(self, place: int) -> int:
        """Return where a place of the marked text is in the plain one."""
        return place - sum(at < place for at, _ in self.places)

    def quoted(self, tokens: re.Pattern[str]) -> tuple[Span, ...]:
        """Return where the control tokens are that came with messages."""
        spans = []
        for number, (at, mark) in enumerate(self.places):
            if mark == self.marks.quote:
                found = tokens.match(self.plain, at - number - 1)
                if found is None:
                    raise ChatError("the chat template takes a control token in a message apart")
                spans.append(found.span())
        return tuple(spans)


def read_marked(full: str, plain: str, marks: Marks) -> Reading:
    """Find the marks in a rendering.

    Raises:
        ChatError: Without its marks it is another text than the plain rendering.
    """
    if marks.pattern.sub("", full) != plain:
        raise ChatError(
            "the chat template decides by what a message holds or begins with, so its turns and "
            "control tokens cannot be told from text; "
            "a template with {% generation %} marks is needed, or other messages"
        )
    places = tuple((found.start(), found[0]) for found in marks.pattern.finditer(full))
    return Reading(plain, marks, places)


def mark_messages(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None,
    marks: Marks,
    tokens: ControlTokens,
    *,
    ends: bool,
) -> tuple[list[dict[str, Any]], list[Any] | None, int]:
    """Mark control tokens in messages and tools, and the ends of the messages.

    Args:
        messages: The chat.
        tools: The tools.
        marks: What to mark with.
        tokens: Finds control tokens.
        ends: Whether to mark the ends of messages.

    Returns:
        Marked copies, and how many control tokens they hold.

    Raises:
        ChatError: A control token stands where no mark can be: in a role or the name of a key.
    """
    count = 0

    def quote(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return found[0][0] + marks.quote + found[0][1:]

    marked = []
    for number, message in enumerate(messages):
        pattern = tokens(assistant=message["role"] == "assistant")
        if found := pattern.search(message["role"]):
            raise ChatError(f"the role of message {number + 1} holds the control token {found[0]}")
        copy: dict[str, Any] = _quoted(dict(message), pattern, quote)
        if ends:
            if "content" in copy:
                copy["content"] = _with_end(copy["content"], marks.ends[2 * number])
            if isinstance(copy.get("tool_calls"), list):
                # A call may be all that a message has, and comes behind what else it has.
                *others, last = copy["tool_calls"] or [None]
                mark = marks.ends[2 * number + 1]
                copy["tool_calls"] = [*others, _with_call_end(last, mark)] if last else others
        marked.append(copy)
    marked_tools = None if tools is None else _quoted(list(tools), tokens(assistant=False), quote)
    return marked, marked_tools, count


def _quoted(value: Any, pattern: re.Pattern[str], quote: Callable[[re.Match[str]], str]) -> Any:
    """Mark the control tokens in every string."""
    if isinstance(value, str):
        return pattern.sub(quote, value)
    if isinstance(value, list):
        return [_quoted(part, pattern, quote) for part in value]
    if isinstance(value, dict):
        if found := next(filter(None, map(pattern.search, value)), None):
            raise ChatError(f"the name of a key holds the control token {found[0]}")
        return {name: _quoted(part, pattern, quote) for name, part in value.items()}
    return value


def _with_end(content: Any, mark: str) -> Any:
    """Mark the end of a content; white space behind it stays behind, for templates that trim."""
    if isinstance(content, str):
        visible = content.rstrip()
        return visible + mark + content[len(visible) :] if visible else content
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else None for part in content]
        visible_parts = [isinstance(text, str) and bool(text.strip()) for text in texts]
        if any(visible_parts):
            place = len(content) - 1 - visible_parts[::-1].index(True)
            ended = {**content[place], "text": _with_end(texts[place], mark)}
            return [*content[:place], ended, *content[place + 1 :]]
    return content


def _with_call_end(call: Any, mark: str) -> Any:
    """Mark the last text of a call: in its arguments, else its name."""
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        return {**call, "function": _with_call_end(call["function"], mark)}
    if not isinstance(call, dict):
        return call
    marked = _with_last_text_end(call.get("arguments"), mark)
    if marked is not None:
        return {**call, "arguments": marked}
    return {**call, "name": _with_end(call.get("name"), mark)} if "name" in call else call


def _with_last_text_end(value: Any, mark: str) -> Any:
    """Mark the last visible string inside a value; None if there is none."""
    if isinstance(value, str):
        return _with_end(value, mark) if value.strip() else None
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        return None
    for name, part in reversed(parts):
        marked = _with_last_text_end(part, mark)
        if marked is not None:
            copy = value.copy()
            copy[name] = marked
            return copy
    return None
