"""What could not become samples: millions of lines perhaps, so that they are read as asked for."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Final, TypeVar, overload

from loaders.format.files import to_json
from preprocess.errors import OutputError, SampleError

Entry = TypeVar("Entry")

_BATCH: Final = 4096
"""Lines that are written at a time."""


class Listed(Sequence[Entry]):
    """Entries that lie elsewhere, or are made as they are asked for; none is kept.

    Args:
        count: How many there are.
        make: Gives them from the first on, as often as it is called.
    """

    def __init__(self, count: int, make: Callable[[], Iterator[Entry]]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        return self._make()

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        """Return the entry at a place, or those at some; what is before is passed over."""
        chosen = range(self._count)[index]
        if isinstance(chosen, int):
            return next(islice(self._make(), chosen, None))
        wanted = sorted(chosen)
        step = abs(chosen.step)
        found = list(islice(self._make(), wanted[0], wanted[-1] + 1, step)) if wanted else []
        return found if chosen.step > 0 else found[::-1]


def listed_together(parts: Sequence[Sequence[Entry]]) -> Sequence[Entry]:
    """Return sequences one after the other, as one that copies none."""
    parts = [part for part in parts if len(part)]
    return Listed(sum(map(len, parts)), partial(chain.from_iterable, parts))


def as_pairs(errors: Sequence[SampleError]) -> Sequence[tuple[str, str]]:
    """Return (key, reason) of each error, made as they are asked for."""
    return Listed(len(errors), lambda: ((error.key, error.reason) for error in errors))


def skipped_lines(pairs: Iterable[tuple[str, str]]) -> Iterator[bytes]:
    """Yield the JSON lines of a list of what was skipped, many at a time."""
    remaining = iter(pairs)
    while batch := list(islice(remaining, _BATCH)):
        yield b"".join(to_json({"key": key, "reason": reason}) for key, reason in batch)


def read_skipped_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) of each line of such a list.

    Raises:
        OutputError: The list is missing or damaged.
    """
    try:
        with path.open("rb") as file:
            for line in file:
                entry = json.loads(line)
                yield str(entry["key"]), str(entry["reason"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise OutputError(
            f"{path}: the dataset is there, the list of what it lacks cannot be read ({error!r}); "
            "copy it again, or --overwrite to prepare the dataset again"
        ) from error
