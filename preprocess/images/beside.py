"""What is said of photos beside their pixels: a table of them, and how they are divided."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from preprocess.shares import check_shares
from preprocess.spelling import Option, OptionError, check_names

KEY: Final = "file_name"
"""Column with the paths of photos, as in datasets of Hugging Face."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """A table beside the photos, and what its columns mean.

    Attributes:
        path: A .csv, .jsonl or .parquet.
        key: Column with the path of each photo below the source.
        label: Column with the class of each photo.
        labels: Column with its classes where it may have several: lists, or in CSV texts with `|`
            between them.
        targets: Columns of numbers to be predicted, stored as float32.
    """

    path: Path
    key: str = KEY
    label: str | None = None
    labels: str | None = None
    targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a text in the place of several, and take the path as a text too."""
        object.__setattr__(self, "path", Path(self.path))
        check_names(self, "targets")

    def columns(self) -> tuple[str, ...]:
        """Return the columns that every row must have."""
        named = (self.key, self.label, self.labels, *self.targets)
        return tuple(name for name in named if name is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """How photos that lie in no split folders are divided.

    Attributes:
        validation: Share for this split, by a stable hash of the key.
        test: Share for this split.
        seed: Chooses other photos for them.
        stratify: Every class has these shares, by the rank of the hashes.
        group_by: Column of the metadata; photos with the same value are of one split.
        column: Column of the metadata that names the split.
        allow_leaks: Keep exact copies that lie in several splits.
    """

    validation: float = 0.0
    test: float = 0.0
    seed: int = 0
    stratify: bool = False
    group_by: str | None = None
    column: str | None = None
    allow_leaks: bool = False

    def __post_init__(self) -> None:
        """Refuse shares outside their range, and ways to split that exclude each other."""
        shares = check_shares(self.validation, self.test, self.seed)
        if self.column is not None and shares:
            raise OptionError(Option("splits.column"), " and shares: give one of them")
        if not shares and (self.stratify or self.group_by is not None):
            named = "stratify" if self.stratify else "group_by"
            raise OptionError(Option(f"splits.{named}"), ": only with shares for other splits")
        if self.stratify and self.group_by is not None:
            raise OptionError(
                Option("splits.stratify"), " and ", Option("splits.group_by"), " exclude each other"
            )

    @property
    def by_columns(self) -> bool:
        """Whether a column of the metadata is needed."""
        return self.column is not None or self.group_by is not None

    @property
    def divides(self) -> bool:
        """Whether there is something to divide by."""
        return self.column is not None or self.validation + self.test > 0
