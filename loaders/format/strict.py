"""Reading JSON values strictly: each refusal says where, what came and what was expected."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

from loaders.errors import FormatError, VersionError

_SHOWN = 80
"""Characters of a wrong value that a message repeats."""


@contextmanager
def parsing(path: Path, remedy: str) -> Iterator[None]:
    """Let whatever is refused while a file is parsed name it, and say what to do.

    A field or column that is made of it says what is wrong with itself, wherever it comes from.
    """
    try:
        yield
    except VersionError:  # has a remedy of its own
        raise
    except FormatError as error:
        said = str(error) if str(error).startswith(f"{path}:") else f"{path}: {error}"
        raise type(error)(f"{said}; {remedy}") from error


@dataclass(frozen=True, slots=True)
class Place:
    """A position inside a document, for messages such as `manifest.json: splits.train.counts`."""

    name: str

    def at(self, key: str) -> "Place":
        """Return the place of a member."""
        return Place(f"{self.name}: {key}" if ": " not in self.name else f"{self.name}.{key}")

    def wrong(self, value: object, expected: str) -> FormatError:
        """Return the error for a value that is not what the format promises."""
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
        return FormatError(f"{self.name}: got {shown}, expected {expected}")

    def refuse(self, value: object, expected: str) -> Never:
        """Raise the error for a value that is not what the format promises."""
        raise self.wrong(value, expected)

    def expect(self, holds: bool, value: object, expected: str) -> None:  # noqa: FBT001
        """Refuse `value` unless the condition holds."""
        if not holds:
            self.refuse(value, expected)

    def integer(self, value: Any, *, low: int, high: int) -> int:
        """Return an integer in low..high; a bool or a float is none."""
        if type(value) is not int or not low <= value <= high:
            self.refuse(value, f"an integer in {low}..{high}")
        return value

    def integers(self, value: Any, *, low: int, high: int) -> tuple[int, ...]:
        """Return a list of integers in low..high."""
        found = self.sequence(value)
        for item in found:
            if type(item) is not int or not low <= item <= high:
                self.refuse(item, f"integers in {low}..{high}")
        return tuple(found)

    def text(self, value: Any, pattern: re.Pattern[str] | None = None) -> str:
        """Return a string, matched whole by the pattern if there is one."""
        if not isinstance(value, str) or not (pattern is None or pattern.fullmatch(value)):
            self.refuse(value, "a string" if pattern is None else f"text like {pattern.pattern}")
        return value

    def texts(self, value: Any, pattern: re.Pattern[str] | None = None) -> tuple[str, ...]:
        """Return a list of strings, each matched whole by the pattern if there is one."""
        found = self.sequence(value)
        for item in found:  # a checksum for each file, so no call for each
            if not isinstance(item, str) or not (pattern is None or pattern.fullmatch(item)):
                self.text(item, pattern)
        return tuple(found)

    def sequence(self, value: Any) -> list[Any]:
        """Return a JSON array."""
        if not isinstance(value, list):
            self.refuse(value, "an array")
        return value

    def partial_mapping(self, value: Any, allowed: set[str] | None) -> dict[str, Any]:
        """Return a JSON object whose keys are among the allowed ones (any, if None)."""
        if not isinstance(value, dict):
            self.refuse(value, "an object")
        unknown = [] if allowed is None else sorted(set(value) - allowed)
        if unknown:
            self.refuse(unknown[0], f"no key but {sorted(allowed or ())}")
        return value

    def mapping(self, value: Any, keys: set[str]) -> dict[str, Any]:
        """Return a JSON object that has exactly these keys."""
        found = self.partial_mapping(value, keys)
        missing = sorted(keys - set(found))
        if missing:
            self.refuse(sorted(found), f"the key {missing[0]!r} too")
        return found
