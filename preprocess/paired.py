"""What belongs to an item beside its own file."""

from dataclasses import dataclass
from pathlib import Path


def as_key(path: str) -> str:
    """Return the key of an item out of its path as another file spells it.

    `./a.jpg` and `sub//a.jpg` are those without. A path from the root and one with `..` stay as
    they are: they name no item.
    """
    if path.startswith("/"):
        return path
    return "/".join(part for part in path.split("/") if part not in ("", "."))


@dataclass(frozen=True, slots=True)
class PairedFile:
    """A file that belongs to an item.

    Attributes:
        folder: What it lies below.
        key: Path below its folder.
        nbytes: Size when it was listed.
        mtime_ns: Time of its last change when it was listed.
    """

    folder: Path
    key: str
    nbytes: int
    mtime_ns: int

    @property
    def identity(self) -> str:
        """What tells it from another, as text."""
        return f"\0file\0{self.key}\0{self.nbytes}"


BoxRow = tuple[int, float, float, float, float]
"""Label, left, top, right, bottom."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of an item.

    Attributes:
        rows: Label, left, top, right, bottom of each.
        size: (width, height) of the picture that they are in pixels of; None: they are shares.
    """

    rows: tuple[BoxRow, ...]
    size: tuple[int, int] | None

    @property
    def identity(self) -> str:
        """What tells them from others, as text."""
        return f"\0boxes\0{self.size}\0{self.rows}"


@dataclass(frozen=True, slots=True)
class Values:
    """What a table says of an item.

    Attributes:
        labels: Classes that it belongs to, of those of which it may have several.
        targets: Numbers to be predicted.
    """

    labels: tuple[int, ...]
    targets: tuple[float, ...]

    @property
    def identity(self) -> str:
        """What tells them from others, as text."""
        return f"\0values\0{self.labels}\0{self.targets}"
