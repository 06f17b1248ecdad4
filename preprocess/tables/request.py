"""What is asked for when a table is prepared."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Final

from loaders.format.out_of_range import OUT_OF_RANGE, OutOfRange
from preprocess.spelling import Option, OptionError
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
                remedy = TEXT_REMEDY.format(quote(name))
                raise OptionError(Option("schema"), f": column {name!r}: {remedy}")
        outside = Option("out_of_range", self.out_of_range)
        if self.out_of_range not in OUT_OF_RANGE:
            raise OptionError(outside, f": expected {OUT_OF_RANGE}")
        if self.like is None:
            if self.out_of_range != "refuse":
                raise OptionError(
                    *(outside, ": only with ", Option("like")),
                    "; what is prepared without has codes for all of its values",
                )
            return
        default = TableOptions()
        for name in _SETTLED:
            if getattr(self.options, name) != getattr(default, name):
                raise OptionError(
                    *(
                        Option(name, getattr(self.options, name)),
                        ": what columns become, and that ",
                    ),
                    *("rows are not split, is settled by ", Option("like")),
                )
        if self.wishes:
            raise OptionError(
                Option("schema"), ": what columns become is settled by ", Option("like")
            )

    def recorded(self, like: Like | None, text: TextColumns | None) -> dict[str, Any]:
        """Return everything that changes bytes, as JSON values."""
        wishes = {name: asdict(wish) for name, wish in sorted(self.wishes.items())}
        described = recorded(self.options, wishes, None if like is None else like.sha256)
        if self.limit is not None:
            described["limit"] = self.limit
        if self.out_of_range != "refuse":
            described["out_of_range"] = self.out_of_range
        return described if text is None else {**described, TEXTS: text.recorded()}
