"""Where the assistant's turns are in a rendered chat whose template does not mark them.

Turn i begins where the prompt for an answer to the messages before it ends, and ends where a chat
of the messages up to it would end. Both are found by rendering those messages alone. Such a
rendering need not be a prefix of the whole chat: reasoning templates write the last answer in
another way than earlier ones. So only what follows the last mark is compared, and must be found
behind the same mark in the whole chat, or the chat is refused.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from preprocess.tokens.chat_marks import ChatError, ControlTokens, Reading, Span

# A prompt may open the reasoning for the model; a turn that is over may lack it.
_REASONING: Final = re.compile(r"<think>\s*(?:</think>\s*)?\Z")


def find_turns(
    messages: Sequence[Any],
    full: str,
    reading: Reading,
    render: Callable[..., tuple[str, list[Span]]],
    tokens: ControlTokens,
) -> list[Span]:
    """Find what the assistant writes.

    Args:
        messages: The chat, marked.
        full: Its rendering.
        reading: Its marks.
        render: Renders some messages; with `prompt=True`, the prompt for an answer follows.
        tokens: Finds control tokens.

    Returns:
        Spans of the plain text, from behind the prompt to the end of the turn. White space behind
        the last control token of a turn belongs to the template: no model has to write it.

    Raises:
        ChatError: A turn cannot be found.
    """
    spans: list[Span] = []
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        if not number:
            raise ChatError(
                "the first message is the assistant's: where its turn begins cannot be found; "
                "a chat template with {% generation %} marks is needed"
            )
        prompt, _ = render(messages[:number], prompt=True)
        begin = _place_after(prompt, full, reading)
        if begin is None and (shorter := _REASONING.sub("", prompt)) != prompt:
            begin = _place_after(shorter, full, reading)
        whole = full if number + 1 == len(messages) else render(messages[: number + 1])[0]
        end = _place_after(whole, full, reading)
        if begin is None or end is None or begin > end:
            raise ChatError(
                f"the turn of message {number + 1} cannot be found: the chat template writes the "
                "messages up to it in another way than within the whole chat; "
                "a template with {% generation %} marks is needed"
            )
        span = (reading.plain_place(begin), reading.plain_place(end))
        span = _without_tail(reading.plain, span, tokens(assistant=False))
        if spans and span[0] < spans[-1][1]:
            raise ChatError(f"the turn of message {number + 1} overlaps the one before it")
        if spans and span[0] == spans[-1][1]:
            spans[-1] = (spans[-1][0], span[1])
        else:
            spans.append(span)
    return spans


def _place_after(part: str, full: str, reading: Reading) -> int | None:
    """Return where a rendering of the first messages ends in the whole chat."""
    ends = reading.marks.ends
    found = [match for match in reading.marks.pattern.finditer(part) if match[0] in ends]
    if not found:
        return len(part) if full.startswith(part) else None
    places = [at for at, mark in reading.places if mark == found[-1][0]]
    tail = part[found[-1].end() :]
    if len(places) != 1 or not full.startswith(tail, places[0] + 1):
        return None
    return places[0] + 1 + len(tail)


def _without_tail(plain: str, span: Span, tokens: re.Pattern[str]) -> Span:
    """Leave out white space that follows the last control token of a turn."""
    begin, end = span
    visible = begin + len(plain[begin:end].rstrip())
    if any(found.end() == visible for found in tokens.finditer(plain, begin, visible)):
        return begin, visible
    return span
