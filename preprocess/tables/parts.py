"""The files of a table, and how each of them is read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item, Listing
from preprocess.tables.block import Block
from preprocess.tables.gathered import Load, Part
from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.read import read_blocks


@dataclass(frozen=True, slots=True)
class Reading:
    """How a listing is read.

    Attributes:
        options: How numbers are written, and so on.
        limit: Only so many rows are read, of each file its share; None for all.
        refused: Files that are left out unread, as they end or hold up the process -> why.
        item_timeout: Seconds for a file, which is then tried alone before; None for any time.
    """

    options: TableOptions
    limit: int | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    item_timeout: float | None = None


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file, and how much is read of it.

    Attributes:
        files: Those of the source.
        key: Names the file.
        split: The split that it lies in.
        place: Its number among the files.
        items: The file, or its parts.
        most: Rows that are read; None for all.
        refused: Why it is left out unread; None if it is not.
    """

    files: ItemFiles
    key: str
    split: str
    place: int
    items: tuple[Item, ...]
    most: int | None
    refused: str | None

    def loads(self, options: TableOptions) -> Iterator[Load]:
        """Yield what makes the blocks of the file.

        Raises:
            SampleError: The file as a whole is refused.
        """
        if self.refused is not None:
            raise SampleError(self.key, self.refused)
        most = self.most
        for item in self.items:
            for raw in read_blocks(self.files, item, options):
                if most is None:
                    yield partial(parse_block, raw, options)
                    continue
                # How many rows are left is known once those before are parsed.
                block = parse_block(raw, options, most)
                most -= len(block.rows)
                yield partial(_as_it_is, block)
                if not most:
                    return

    def read_for_nothing(self, options: TableOptions) -> None:
        """Read and parse all of the file that is read."""
        for load in self.loads(options):
            load()


def files_of(listing: Listing, reading: Reading, opened: ItemFiles) -> Iterator[TableFile]:
    """Yield the files of a listing of which rows are read.

    Args:
        listing: The input.
        reading: How it is read.
        opened: Notes what they hold.
    """
    # A large file may be several items: it counts as a whole, or not at all.
    files = [
        (split, key, tuple(parts))
        for split, items in listing.splits.items()
        for key, parts in groupby(items, lambda item: item.key)
    ]
    for place, (split, key, parts) in enumerate(files):
        most = _share(reading.limit, place, len(files))
        if most != 0:
            refused = reading.refused.get(key)
            yield TableFile(opened, key, split, place, parts, most, refused)


def parts_of(listing: Listing, reading: Reading, opened: ItemFiles) -> Iterator[Part]:
    """Yield the files of a listing; each is read as its blocks are asked for."""
    for file in files_of(listing, reading, opened):
        loads = file.loads(reading.options)
        yield Part(key=file.key, split=file.split, place=file.place, loads=loads)


def _share(limit: int | None, place: int, files: int) -> int | None:
    """Return how many rows are read of a file: of the places of rows, those that fall in its own.

    So the files of fewer rows than there are files are evenly spaced.
    """
    if limit is None:
        return None
    return -(-(place + 1) * limit // files) - -(-place * limit // files)


def _as_it_is(block: Block) -> Block:
    return block
