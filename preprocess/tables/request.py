"""What is asked for when a table is prepared."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Final

from loaders.format.out_of_range import OUT_OF_RANGE, OutOfRange
from preprocess.tables.like import Like
from preprocess.tables.options import TEXT_REMEDY, TableOptions
from preprocess.tables.recipe import recorded
from preprocess.tables.tokens import TEXTS, TextColumns
from preprocess.tables.toml import Wish

_SETTLED: Final = (
    *("task", "categorical", "numeric", "hash_buckets", "min_count", "float32"),
    *("datetime_parts", "room", "validation", "test"),
)
"""Options that say what columns become, or cut the rows of one table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """What is to be prepared, and how.

    Attributes:
        source: Folder, file or pattern; or a data frame of pandas or polars.
        out: Folder to write the dataset to.
        options: How the table is read, typed and split.
        wishes: What is asked of single columns, by name.
        like: Another dataset, whose schema and vocabularies are used.
        out_of_range: What becomes of features that this schema has no code for.
        limit: Prepare only so many rows of files, of each its share.
        follow_links: Take what symbolic links point to.
    """

    source: Any
    out: Path
    options: TableOptions
    wishes: Mapping[str, Wish] = field(default_factory=dict)
    like: Path | None = None
    out_of_range: OutOfRange = "refuse"
    limit: int | None = None
    follow_links: bool = False

    def __post_init__(self) -> None:
        """Refuse texts, and options that another dataset's schema leaves no room for."""
        for name, wish in self.wishes.items():
            if wish.kind == "text":
                raise ValueError(f"schema: column {name!r}: {TEXT_REMEDY.format(quote(name))}")
        if self.out_of_range not in OUT_OF_RANGE:
            raise ValueError(f"out_of_range={self.out_of_range!r}: expected {OUT_OF_RANGE}")
        if self.like is None:
            if self.out_of_range != "refuse":
                raise ValueError(
                    f"out_of_range={self.out_of_range!r}: only with like; what is prepared without "
                    "has codes for all of its values"
                )
            return
        default = TableOptions()
        for name in _SETTLED:
            if getattr(self.options, name) != getattr(default, name):
                raise ValueError(
                    f"{name}={getattr(self.options, name)!r}: what columns become, and that rows "
                    "are not split, is settled by like"
                )
        if self.wishes:
            raise ValueError("schema: what columns become is settled by like")

    def recorded(self, like: Like | None, text: TextColumns | None) -> dict[str, Any]:
        """Return everything that changes bytes, as JSON values."""
        wishes = {name: asdict(wish) for name, wish in sorted(self.wishes.items())}
        described = recorded(self.options, wishes, None if like is None else like.sha256)
        if self.limit is not None:
            described["limit"] = self.limit
        if self.out_of_range != "refuse":
            described["out_of_range"] = self.out_of_range
        return described if text is None else {**described, TEXTS: text.recorded()}
