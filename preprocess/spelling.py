"""How an option is spelled: as a keyword in Python, as a flag on the command line.

What an option record refuses is an `OptionError`, which has both spellings. What is said of a
source or an output folder, long after the options were given, has flags; Python's functions spell
them as keywords on their way out, by `in_python`.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from loaders.errors import ShardsError

_UNSET: Final = object()

_FLAGS: Final[Mapping[str, str]] = {
    "container": "--format",
    "header": "--no-header",
    "max_document_nbytes": "--max-document",
    "max_item_nbytes": "--max-item-bytes",
    "resample": "--filter",
    "shard_nbytes": "--shard-size",
    "splits.column": "--split-column",
    "splits.seed": "--split-seed",
    "targets": "--target",
}
"""Keywords whose flag is not their own name with dashes."""

_FLAGS_OF_VALUES: Final[Mapping[tuple[str, Any], str]] = {
    ("bos", None): "--add-bos",
    ("eos", ""): "--no-eos",
}
"""Values of keywords that have a flag of their own."""

_SWITCHES: Final[Mapping[str, str]] = {
    "--allow-leaks": "allow_leaks=True",
    "--append": "append=True",
    "--follow-links": "follow_links=True",
    "--lines": "lines=True",
    "--no-eos": "eos=''",
    "--no-header": "header=False",
    "--overwrite": "overwrite=True",
    "--stratify": "stratify=True",
}
"""Flags that take no value, and what gives as much in Python."""

_COMMANDS_ALONE: Final = frozenset({"--full", "--help", "--to"})
"""Flags of commands that no function of Python takes by name."""

_NO_KEYWORDS: Final[Mapping[str, str]] = {}

_FLAG: Final = re.compile(r"(?<![\w/.'\"-])--[a-z][a-z0-9-]*(?![\w/.])")

_RECORDED: Final = frozenset({"splits", "text"})
"""Records of options within a record, whose flags have no prefix."""


def flag_of(keyword: str) -> str:
    """Return the flag of an option by its keyword, or by its path within a record of options."""
    if keyword in _FLAGS:
        return _FLAGS[keyword]
    prefix, _, name = keyword.partition(".")
    bare = name if prefix in _RECORDED and name else keyword
    return _FLAGS.get(bare, f"--{bare.replace('_', '-')}")


def keyword_of(flag: str) -> str:
    """Return how Python spells a flag."""
    if flag in _SWITCHES:
        return _SWITCHES[flag]
    known = {named: keyword for keyword, named in _FLAGS.items()}
    return known.get(flag, flag.removeprefix("--").replace("-", "_"))


@dataclass(frozen=True, slots=True)
class Option:
    """An option in a message.

    Attributes:
        name: Its keyword.
        value: What it was given, if the message says so.
    """

    name: str
    value: Any = _UNSET

    @property
    def keyword(self) -> str:
        """Python's spelling."""
        return self.name if self.value is _UNSET else f"{self.name}={self.value!r}"

    @property
    def flag(self) -> str:
        """The command line's spelling."""
        if self.value in (None, "") and (self.name, self.value) in _FLAGS_OF_VALUES:
            return _FLAGS_OF_VALUES[self.name, self.value]
        flag = flag_of(self.name)
        if self.value is _UNSET or isinstance(self.value, bool):
            return flag
        return f"{flag} {shlex.quote(_typed(self.value))}"


def _typed(value: Any) -> str:
    if isinstance(value, tuple):
        pairs = ("=".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value)
        return ",".join(pairs)
    return str(value)


class OptionError(ValueError):
    """An option has a value that it cannot have, or does not go with another.

    Attributes:
        parts: Of the message.
    """

    def __init__(self, *parts: str | Option) -> None:
        said = [spelled_in_python(p) if isinstance(p, str) else p.keyword for p in parts]
        super().__init__("".join(said))
        self.parts = parts

    @property
    def as_typed(self) -> str:
        """The message for somebody who has typed flags."""
        return "".join(part if isinstance(part, str) else part.flag for part in self.parts)


def check_names(options: Any, *names: str) -> None:
    """Refuse options that are no tuples of texts: one text would be taken letter by letter.

    Args:
        options: A record of options.
        names: Of those that hold several texts.

    Raises:
        OptionError: One holds something else.
    """
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, tuple) or not all(isinstance(one, str) for one in value):
            raise OptionError(
                Option(name), f"={value!r}: expected a tuple of texts, such as ('one',)"
            )


def spelled_in_python(message: str, own: Mapping[str, str] = _NO_KEYWORDS) -> str:
    """Return a message with keywords, between back quotes, in the place of flags.

    Args:
        message: It.
        own: Flags that have another keyword where it comes from.
    """

    def keyword(found: re.Match[str]) -> str:
        flag = found[0]
        return flag if flag in _COMMANDS_ALONE else f"`{own.get(flag) or keyword_of(flag)}`"

    return _FLAG.sub(keyword, message)


@contextmanager
def in_python(own: Mapping[str, str] = _NO_KEYWORDS) -> Iterator[None]:
    """Let errors that leave a function of Python name its keywords.

    Args:
        own: Flags that have another keyword there than elsewhere.
    """
    try:
        yield
    except ShardsError as error:
        error.args = tuple(
            spelled_in_python(part, own) if isinstance(part, str) else part for part in error.args
        )
        raise


_LISTED: Final = 20
"""Names that a message lists."""


def there_are(asked: str, names: Sequence[str]) -> str:
    """Return what names there are, for a message, and first the one that may have been meant."""
    folded = {name.casefold(): name for name in reversed(names)}
    near = get_close_matches(asked.casefold(), folded, n=1)
    shown = ", ".join(map(repr, names[:_LISTED])) + (", ..." if len(names) > _LISTED else "")
    meant = f"perhaps {folded[near[0]]!r} is meant; " if near else ""
    return f"{meant}there are {shown or 'none'}"
