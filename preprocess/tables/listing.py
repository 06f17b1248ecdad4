"""Which files of a source hold tables."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from preprocess.errors import SourceError
from preprocess.items import Item, Listing
from preprocess.tables.options import TableOptions
from preprocess.texts.cut import cut_item, kind_to_read
from preprocess.texts.kinds import Kind, inner_ending, kind_by_name
from preprocess.texts.listing import list_files
from preprocess.texts.options import TextOptions


def list_tables(source: Path, options: TableOptions, *, follow_links: bool = False) -> Listing:
    """List the files of a folder, one file, or all files that a pattern such as `a/*.csv` matches.

    In folders, files are taken by their endings, and Parquet, Arrow and JSON by content as well;
    plain text is passed over. Files that are named, alone or by a pattern, are taken as CSV where
    neither name nor content says otherwise. Splits are found as in `list_folder`. Large Parquet
    files become several items, each some row groups.

    Raises:
        SourceError: Nothing is there, nothing can be read, or the splits are ambiguous.
    """
    text_options = TextOptions(encoding=options.encoding, follow_links=follow_links)
    listing = list_files(source, text_options)
    ignored = Counter(listing.ignored)
    splits: dict[str, tuple[Item, ...]] = {}
    for name, items in listing.splits.items():
        kept: list[Item] = []
        for item in items:
            kind = kind_by_name(item.key)
            if kind == "text" and source.is_dir():
                ignored[f"not a table ({inner_ending(item.key)})"] += 1
            elif kind == "parquet":
                kept += cut_item(listing.root, item, text_options)
            else:
                kept.append(item)
        if kept:
            splits[name] = tuple(kept)
    if not splits:
        seen = ", ".join(f"{count:,} {reason}" for reason, count in sorted(ignored.items()))
        raise SourceError(f"{source}: no table among: {seen}")
    return replace(listing, splits=splits, ignored=dict(sorted(ignored.items())))


def kind_of_item(root: Path, item: Item) -> Kind | None:
    """Return what a file is by its name, else by its content; None for what only CSV can be."""
    kind = kind_by_name(item.key)
    if kind is None or kind == "text":
        return kind_to_read(root, item)
    return kind
