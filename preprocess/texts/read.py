"""Texts: files of many kinds -> documents, a block at a time, each fault named."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.item_files import check_nbytes
from preprocess.items import Item
from preprocess.texts.arrays import make_texts, texts_from_buffers, valid_utf8
from preprocess.texts.content import invalid_utf8, open_text
from preprocess.texts.cut import kind_to_read
from preprocess.texts.documents import Documents
from preprocess.texts.from_arrow import read_arrow, read_parquet
from preprocess.texts.from_csv import read_csv
from preprocess.texts.from_json import read_json
from preprocess.texts.kinds import COMPRESSED_ENDINGS, kind_by_name
from preprocess.texts.lines import read_lines
from preprocess.texts.listing import list_texts
from preprocess.texts.options import TextOptions
from preprocess.texts.records import dump_json

__all__ = ["TextOptions", "list_texts", "read_documents"]


def read_documents(
    files: ItemFiles, item: Item, options: TextOptions, *, few: bool = False
) -> Iterator[Documents]:
    """Yield the documents of an item in order, some MB at a time.

    With `few` those of Parquet are the first alone, and nothing is asked for that ends the process
    where the file is damaged: for who reads before a note says which file is in work.

    `Documents.places` are, of JSON lines and of lines of text, the byte at which the record begins
    in the file (decompressed; as UTF-8 if it is in another encoding); of Parquet, Arrow and CSV
    the row, from 1; and 0 where the file is one document. The keys of `Documents.errors`, and what
    `Documents.name` gives, are "path:line" and "path:row" alike, counted from 1.

    Raises:
        SampleError: The file as a whole is refused, even after some documents: those do not
            count, since they are not all that it held.
        SourceError: The machine is short of descriptors or memory, or lost the file system.
    """
    if item.nbytes == 0 and item.key.lower().endswith(COMPRESSED_ENDINGS):
        raise SampleError(item.key, "truncated: an empty file, which nothing compresses to")
    check_nbytes(item, options.max_item_nbytes)
    kind = kind_by_name(item.key) or kind_to_read(files.root, item) or "text"
    if kind == "json":
        yield from read_json(files, item, options)
    elif kind == "parquet":
        yield from read_parquet(files, item, options, few=few)
    elif kind == "arrow":
        yield from read_arrow(files, item, options)
    elif kind in {"csv", "tsv"}:
        yield from read_csv(files, item, options, "," if kind == "csv" else "\t")
    else:
        read = read_lines if options.lines else _read_whole
        yield from _without_keys(read(files, item, options), item, options)


def _without_keys(
    found: Iterator[Documents], item: Item, options: TextOptions
) -> Iterator[Documents]:
    """Give plain text what the options ask of every document, as far as it can have it."""
    if options.json_values or options.pair_key is not None:
        wanted = options.text_key if options.json_values else options.pair_key
        raise SampleError(item.key, f"plain text, which has no key {wanted!r}")
    nothing = dump_json(dict.fromkeys(options.metadata_keys))
    for documents in found:
        if options.metadata_keys:
            values = make_texts([nothing] * len(documents.texts))
            yield replace(documents, metadata=values)
        else:
            yield documents


def _read_whole(files: ItemFiles, item: Item, options: TextOptions) -> Iterator[Documents]:
    """Yield a file as one document; nothing for an empty one."""
    with files.open(item) as file:
        text = open_text(file, item.key, options)
        chunks, nbytes = [], 0
        for chunk in text.chunks:
            nbytes += len(chunk)
            if nbytes > options.max_document_nbytes:
                # All of a file that is not compressed; else what has been read of it.
                raise SampleError(item.key, options.refusal_of(max(nbytes, item.nbytes)))
            chunks.append(chunk)
        data = b"".join(chunks)
    if not data:
        return
    if valid_utf8(data):
        texts = texts_from_buffers(np.array([0, len(data)], np.int64), data)
    elif options.replaces:
        texts = make_texts([data.decode(errors="replace")])
    else:
        offset, reason = invalid_utf8(data) or (0, "unknown")
        raise SampleError(item.key, f"not valid UTF-8: {reason} at byte {text.offset + offset:,}")
    yield Documents(texts=texts, places=np.zeros(1, np.int64))
