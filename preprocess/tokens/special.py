"""The layout that the options ask for, with the tokenizer's special tokens looked up in it."""

from typing import Any, Final

import numpy as np

from preprocess.errors import SourceError
from preprocess.tokens.fixed_rows import RowFrame
from preprocess.tokens.layouts import AnyLayout, FixedLayout, PackedLayout, StreamLayout
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.tokenizer import TextTokenizer

FOLDER: Final = "tokenizer"
"""Where the tokenizer's files lie in the dataset."""


def choose_layout(options: TokenOptions, tokenizer: TextTokenizer) -> AnyLayout:
    """Return what is stored of a document, special tokens looked up."""
    dtype = tokenizer.dtype
    stored = np.dtype(dtype).newbyteorder("<")
    pad = tokenizer.pad_id if options.pad is None else tokenizer.id_of(options.pad)
    if options.layout == "fixed" and options.length is not None:
        if pad is None:
            raise SourceError(
                f"{options.tokenizer}: the tokenizer has no padding token; name one with --pad"
            )
        pairs = options.text.pair_key is not None
        prefix, suffix = tokenizer.prefix_ids, tokenizer.suffix_ids
        separator: tuple[int, ...] = ()
        if pairs:
            prefix, separator, suffix = tokenizer.pair_frame()
        frame = RowFrame(
            length=options.length,
            pad_id=pad,
            dtype=stored,
            prefix_ids=prefix,
            separator_ids=separator,
            suffix_ids=suffix,
            stride=options.stride,
        )
        try:
            frame.room(pairs=pairs)
        except ValueError as error:
            raise SourceError(f"{options.tokenizer}: {error}") from error
        return FixedLayout(frame=frame, pairs=pairs)
    if options.layout == "chat":
        return StreamLayout(dtype=dtype, masked=True)
    bos = _special(options.bos, tokenizer.bos_id, "BOS", tokenizer, options)
    eos = _special(options.eos, tokenizer.eos_id, "EOS", tokenizer, options)
    if options.layout == "packed" and options.length is not None:
        fill = pad if pad is not None else next(iter((*eos, *bos, 0)))
        return PackedLayout(
            dtype=dtype,
            length=options.length,
            packing=options.packing,
            pad_id=fill,
            bos=bos,
            eos=eos,
        )
    return StreamLayout(dtype=dtype, bos=bos, eos=eos)


def _special(
    wanted: str | None,
    own: int | None,
    what: str,
    tokenizer: TextTokenizer,
    options: TokenOptions,
) -> tuple[int, ...]:
    if wanted == "":
        return ()
    if wanted is not None:
        return (tokenizer.id_of(wanted),)
    if own is None:
        remedy = {
            "EOS": "name one with --eos, or --no-eos to store documents without",
            "BOS": "name one with --bos, or leave --add-bos out",
        }
        raise SourceError(f"{options.tokenizer}: the tokenizer has no {what} token; {remedy[what]}")
    return (own,)


def tokenizer_facts(tokenizer: TextTokenizer, layout: AnyLayout) -> dict[str, Any]:
    """Return what a reader should know of the tokenizer, as JSON values."""
    facts = {
        "sha256": tokenizer.source.sha256,
        "files": [f"{FOLDER}/{name}" for name in tokenizer.source.copies()],
        "largest_id": tokenizer.largest_id,
        "eos_id": tokenizer.eos_id,
        "bos_id": tokenizer.bos_id,
        "pad_id": tokenizer.pad_id,
        "unk_id": tokenizer.unk_id,
    }
    if isinstance(layout, PackedLayout):
        facts["pad_id"] = layout.pad_id
    if isinstance(layout, FixedLayout):
        facts["pad_id"] = layout.frame.pad_id
    return facts
