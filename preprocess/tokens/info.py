"""What a dataset of tokens holds, for people: counts, lengths, sources, and samples as text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.columns import open_column
from loaders.format.spec import Manifest, read_manifest
from loaders.format.split_spec import SplitSpec
from preprocess.items import printable

_SOURCES: Final = 5
"""Sources that are named."""

_COUNTED: Final = 1_000_000
"""Documents whose sources are counted; of more, as many are taken evenly."""

_SHOWN_TOKENS: Final = 60
"""Tokens of a sample that are shown at its beginning and at its end."""


def describe_tokens(manifest: Manifest, root: Path) -> dict[str, Any]:
    """Return what each split holds, as JSON values."""
    return {
        name: _describe_split(split, Columns(root, manifest, name))
        for name, split in manifest.splits.items()
    }


def tokens_text(described: Mapping[str, Any]) -> str:
    """Return what `describe_tokens` has found, for people."""
    lines = []
    for name, split in described.items():
        rate = split["tokens_per_byte"]
        lines.append(
            f"{name}: {split['documents']:,} documents, {split['tokens']:,} tokens of text, "
            f"{split['stored_tokens']:,} stored"
            + ("" if rate is None else f", {rate:.3f} tokens a byte of text")
            + ("" if split["fill"] is None else f", {split['fill']:.4f} of the rows filled")
        )
        lines.append(
            f"  unknown: {split['unknown_rate']:.6f} of the tokens; look like special tokens: "
            f"{split['special_text']:,} documents; compared with transformers: "
            f"{split['audited']:,}"
        )
        lines += [
            f"  {low:>9,} to {high:>9,} tokens: {count:,}" for low, high, count in split["lengths"]
        ]
        lines += [
            f"  from {printable(source)}: {count:,} documents"
            for source, count in split["top_sources"]
        ]
    return "\n".join(lines)


def _describe_split(split: SplitSpec, columns: "Columns") -> dict[str, Any]:
    sums = {name: (row or (0,)) for name, row in split.tallies.items()}
    tokens, nbytes = sums.get("tokens", (0,))[0], sums.get("text_nbytes", (0,))[0]
    return {
        "documents": sums.get("documents", (0,))[0],
        "tokens": tokens,
        "stored_tokens": _stored(split),
        "tokens_per_byte": tokens / nbytes if nbytes else None,
        "unknown_rate": sums.get("unknown", (0,))[0] / tokens if tokens else 0.0,
        "special_text": sums.get("special_text", (0,))[0],
        "audited": sums.get("audited", (0,))[0],
        "fill": _fill(split, columns),
        "lengths": [
            [1 << bin_ - 1 if bin_ else 0, (1 << bin_) - 1, count]
            for bin_, count in enumerate(sums.get("lengths", ()))
            if count
        ],
        "top_sources": [list(pair) for pair in _sources(split, columns).most_common(_SOURCES)],
    }


def _stored(split: SplitSpec) -> int:
    """Return the stored ids: with special tokens, and padding where rows have one length."""
    if "tokens" in split.values:
        return sum(split.values["tokens"])
    return split.count * next(field.shape[0] for field in split.fields if field.name == "tokens")


def _fill(split: SplitSpec, columns: "Columns") -> float | None:
    """Return the part of packed rows that holds tokens; None without packed rows."""
    if "document_lengths" not in split.values:
        return None
    length = next(field.shape[0] for field in split.fields if field.name == "tokens")
    held = sum(int(part.sum(dtype=np.int64)) for part in columns.of("document_lengths"))
    return held / (split.count * length) if split.count else None


def _sources(split: SplitSpec, columns: "Columns") -> Counter[str]:
    step = max(1, -(-split.count // _COUNTED))
    shared = "document_lengths" in split.values  # else a line feed is part of a file's name
    found: Counter[str] = Counter()
    for values, offsets in zip(columns.of("key"), columns.of("key_offsets"), strict=True):
        whole = values.tobytes()
        ends = offsets.astype(np.int64)
        for first, end in zip(ends[:-1:step].tolist(), ends[1::step].tolist(), strict=True):
            row = whole[first:end]
            for key in row.split(b"\0") if shared else [row]:
                found[_path_of(key)] += step
    return found


def _path_of(key: bytes) -> str:
    name, mark, place = key.rpartition(b"@")
    if not mark or not place.isdigit():
        name, mark, place = key.rpartition(b":")
    return (name if mark and place.isdigit() else key).decode(errors="surrogateescape")


def show_samples(root: Path, count: int) -> Iterator[str]:
    """Yield lines that show a few samples as text, evenly spaced, with their boundaries.

    Args:
        root: The dataset.
        count: Samples of each split.

    Raises:
        FormatError: A shard is damaged.
        SourceError: The dataset's tokenizer cannot be loaded.
    """
    from preprocess.tokens.tokenizer import TextTokenizer
    from preprocess.tokens.tokenizer_source import find_tokenizer

    manifest = read_manifest(root)
    tokenizer = TextTokenizer(find_tokenizer(str(root / "tokenizer")))
    for name, split in manifest.splits.items():
        columns = Columns(root, manifest, name)
        shown = min(count, split.count)
        for number in range(shown):
            index = number * split.count // shown
            ids, lengths, key = columns.sample(index)
            yield f"{name}[{index}] {printable(key)}: {len(ids):,} tokens"
            starts = [0, *np.cumsum(lengths).tolist()]
            for first, end in pairwise(starts):
                yield f"  |{_decoded(tokenizer, ids[first:end])}|"


def _decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    if len(ids) <= 2 * _SHOWN_TOKENS:
        return printable(tokenizer.decode(ids))
    left, right = ids[:_SHOWN_TOKENS], ids[-_SHOWN_TOKENS:]
    between = len(ids) - 2 * _SHOWN_TOKENS
    first, last = (printable(tokenizer.decode(part)) for part in (left, right))
    return f"{first} [... {between:,} tokens ...] {last}"


class Columns:
    """The stored columns of a split, mapped shard by shard."""

    def __init__(self, root: Path, manifest: Manifest, name: str) -> None:
        self._root, self._manifest, self._name = root, manifest, name
        self._split = manifest.splits[name]
        self._columns = {column.name for column, _ in self._split.columns()}

    def of(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield a column's rows of each shard that has samples."""
        for index, count in enumerate(self._split.counts):
            if count:
                yield self._open(name, index)

    def _open(self, name: str, index: int) -> NDArray[Any]:
        return open_column(self._root, self._manifest, self._name, name, index)

    def sample(self, index: int) -> tuple[list[int], list[int], str]:
        """Return ids, the lengths of the documents in them, and the key of one sample."""
        shard = int(np.searchsorted(np.cumsum(self._split.counts), index, side="right"))
        row = index - sum(self._split.counts[:shard])
        key = self._ragged("key", shard, row).tobytes().decode(errors="surrogateescape")
        if "tokens_offsets" in self._columns:
            ids = self._ragged("tokens", shard, row).tolist()
            return ids, [len(ids)], key
        ids = self._open("tokens", shard)[row].tolist()
        if "document_lengths" in self._columns:
            return ids, self._ragged("document_lengths", shard, row).tolist(), key
        return ids, [int(self._open("length", shard)[row])], key

    def _ragged(self, name: str, shard: int, row: int) -> NDArray[Any]:
        offsets = self._open(f"{name}_offsets", shard)
        return self._open(name, shard)[int(offsets[row]) : int(offsets[row + 1])]
