"""A few texts of a source: engines are compared on them, and the bytes of all tokens estimated."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.item_files import open_item
from preprocess.items import Item, Listing
from preprocess.texts.arrays import beginnings, make_texts
from preprocess.texts.content import BLOCK_NBYTES, open_content
from preprocess.texts.cut import kind_to_read
from preprocess.texts.documents import Documents
from preprocess.texts.from_arrow import open_batches, open_table
from preprocess.texts.kinds import kind_by_name
from preprocess.texts.read import read_documents
from preprocess.tokens.batch import sizes_of
from preprocess.tokens.engines import Engine, EngineError
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.rates import NBYTES_PER_TOKEN, Rates

if TYPE_CHECKING:
    import pyarrow as pa

_NBYTES: Final = 1 << 15
_ITEMS: Final = 8
"""Text of an item that engines are compared on before a run, about, and the items that it is taken
from: the reference takes 0.1 s for all. The run itself goes on comparing."""

_LOOKED_AT: Final = 200
"""Records of each of these items that are searched for the metadata keys."""

_INFLATED_NBYTES: Final = 1 << 20
"""Of a compressed file, so much is decompressed to see how much it becomes."""

_OFFSETS_NBYTES: Final = 16
"""Of a document, beside its tokens and its key: where both of them end."""


@dataclass(slots=True)
class Sample:
    """Some texts of a few items, evenly spaced over the source.

    Attributes:
        texts: [N] their beginnings.
        absent: Metadata keys that none of the records has.
        source_nbytes: Bytes of the items.
        text_nbytes: Bytes of text in them, about.
        documents: How many they hold, about.
        beside_nbytes: Bytes that are stored beside the tokens of these, about.
    """

    texts: "pa.LargeStringArray"
    absent: list[str]
    source_nbytes: float = 0.0
    text_nbytes: float = 0.0
    documents: float = 0.0
    beside_nbytes: float = 0.0

    def rates(self, engine: Engine) -> Rates:
        """Encode the texts, and say what a byte of the source becomes."""
        seen = int(sizes_of(self.texts).sum())
        if not seen or not self.source_nbytes:
            return Rates()
        try:
            tokens = int(engine.encode(self.texts)[1].sum())
        except EngineError:  # the run names it, and goes on with another
            tokens = round(seen / NBYTES_PER_TOKEN)
        texts = self.text_nbytes / self.source_nbytes
        return Rates(
            documents=self.documents / self.source_nbytes,
            tokens=texts * tokens / seen,
            beside=self.beside_nbytes / self.source_nbytes,
        )


def take_sample(listing: Listing, options: TokenOptions) -> Sample:
    """Return the first texts of a few items, and metadata keys that none has.

    Items that are bad are passed over: the run itself names them.
    """
    found: list[str] = []
    absent = list(options.text.metadata_keys)
    sample = Sample(make_texts([]), absent)
    few = listing.limited(_ITEMS)
    files = ItemFiles(listing.root, sums=False)
    for item in (item for items in few.splits.values() for item in items):
        try:
            documents = next(read_documents(files, item, options.text, few=True), None)
            if documents is not None:
                _count(sample, listing.root, item, documents)
        except SampleError:
            continue
        if documents is not None and absent and documents.metadata is not None:
            kept = [json.loads(one) for one in documents.metadata.slice(0, _LOOKED_AT).to_pylist()]
            absent = [key for key in absent if all(one[key] is None for one in kept)]
        if documents is not None:
            ends = np.cumsum(sizes_of(documents.texts))
            first = documents.texts.slice(0, 1 + int(np.searchsorted(ends, _NBYTES)))
            found += beginnings(first, _NBYTES)
    sample.texts, sample.absent = make_texts(found), absent if found else []
    return sample


def _count(sample: Sample, root: Path, item: Item, documents: Documents) -> None:
    """Add what an item holds, by the first of its documents."""
    nbytes = item.part_nbytes or item.nbytes
    count = len(documents.texts)
    if not count or not nbytes:
        return
    sizes = sizes_of(documents.texts)
    whole = nbytes / _source_nbytes(root, item, documents)
    beside = count * (_OFFSETS_NBYTES + len(item.key.encode(errors="surrogateescape")))
    if documents.metadata is not None:
        beside += int(sizes_of(documents.metadata).sum())
    sample.source_nbytes += nbytes
    sample.text_nbytes += whole * int(sizes.sum())
    sample.documents += whole * count
    sample.beside_nbytes += whole * beside


def _source_nbytes(root: Path, item: Item, documents: Documents) -> float:
    """Return the bytes of a file that some documents, its first, were read from, about."""
    nbytes = item.part_nbytes or item.nbytes
    rows = len(documents.texts) + len(documents.errors)
    kind = kind_by_name(item.key) or kind_to_read(root, item)
    if kind == "parquet":
        return nbytes * min(1.0, rows / max(1, _row_count(root, item)))
    if documents.lines is None and not int(documents.places[0]):
        return nbytes  # one document, all of the file
    if documents.lines is not None and rows > 1 and not documents.errors:
        first, last = int(documents.places[0]), int(documents.places[-1])
        return (last - first) * rows / (rows - 1) / _inflation(root, item)
    # What is beside the texts, or is none, takes its bytes as well: a block of them at least.
    read = _arrow_nbytes(root, item, rows) if kind == "arrow" else BLOCK_NBYTES
    text = int(sizes_of(documents.texts).sum())
    return min(nbytes, max(read, text) / _inflation(root, item))


def _arrow_nbytes(root: Path, item: Item, rows: int) -> float:
    """Return the bytes of the first rows of an Arrow file, with all of its columns."""
    with open_item(root, item) as file, open_table(file, item.key) as source:
        nbytes = found = 0
        for batch in open_batches(source, item.key)[1]:
            nbytes += batch.nbytes
            found += len(batch)
            if found >= rows:
                break
        return max(1.0, nbytes * rows / max(1, found))


def _inflation(root: Path, item: Item) -> float:
    """Return how many bytes a byte of a file is once it is decompressed."""
    with open_item(root, item) as file:
        nbytes = 0
        for chunk in open_content(file, item.key).chunks:
            nbytes += len(chunk)
            if nbytes >= _INFLATED_NBYTES:
                break
        return max(1, nbytes) / max(1, file.tell())


def _row_count(root: Path, item: Item) -> int:
    """Return the rows of the groups of a Parquet file that an item takes."""
    import pyarrow.parquet

    with open_item(root, item) as file, open_table(file, item.key) as source:
        metadata = pyarrow.parquet.ParquetFile(source).metadata
        groups = range(metadata.num_row_groups)[item.start : item.stop]
        return sum(metadata.row_group(index).num_rows for index in groups)
