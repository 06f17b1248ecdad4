"""What tokens add on the reading side: documents, windows, padded rows, packed rows, chats."""

from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from loaders.errors import SelectionError
from loaders.format.spec import Manifest
from loaders.token_blocks import Blocks, Shown, Tail
from loaders.token_documents import Documents
from loaders.token_files import open_megatron, open_nanogpt
from loaders.token_packs import Packed
from loaders.token_rows import Chat, Padded, checked_width
from loaders.token_store import TOKENS, Layout, TokenStore
from loaders.token_views import Labels, TokenView


def open_tokens(path: str | Path, split: str = "train", *, verify: bool = False) -> "TokenDataset":
    """Open a dataset that `prep tokens` wrote.

    The manifest is read, and the split's files are compared with it in size; shards are mapped
    when they are first touched.

    Args:
        path: The dataset's folder.
        split: "train", "validation" or "test".
        verify: Compare the checksum of each file when it is first touched, which reads all of it:
            a flipped bit is then a ChecksumError, not a sample.

    Raises:
        IncompleteError: There is no finished dataset in the folder.
        SelectionError: The dataset holds no tokens, or not this split.
        MissingShardError: A file of the split is not there.
        FormatError: The manifest is damaged, or a file was cut or extended.
        VersionError: A newer format wrote it.
    """
    # Absolute: shards are opened later, perhaps from another working directory.
    return TokenDataset(TokenStore(Path(path).absolute(), split, verify=verify))


def open_token_file(
    path: str | Path, *, dtype: Literal["uint16", "uint32"] = "uint16", eos_id: int | None = None
) -> "TokenDataset":
    """Open the token file of another trainer as it is: Megatron-LM's, or nanoGPT's.

    Args:
        path: `data.bin`, or the prefix `data` of `data.bin` and `data.idx`. With an index beside
            it, it is Megatron-LM's, which says all that follows; else it is nanoGPT's.
        dtype: Of the ids, which nanoGPT's files do not say.
        eos_id: The id that ends each document of a nanoGPT file; None: it is one document.

    Returns:
        A dataset of documents (layout stream), split "train".

    Raises:
        MissingShardError: A file is not there.
        FormatError: It is damaged, or of another kind.
        SelectionError: The dtype or the id cannot be.
    """
    whole = Path(path).absolute()
    prefix = whole.with_suffix("") if whole.suffix in {".bin", ".idx"} else whole
    if prefix.with_name(f"{prefix.name}.idx").exists():
        return TokenDataset(TokenStore(whole, "train", open_megatron(prefix)))
    return TokenDataset(TokenStore(whole, "train", open_nanogpt(whole, dtype=dtype, eos_id=eos_id)))


class TokenDataset:
    """One split of tokens; its methods return the torch datasets that serve it.

    Ids are stored, gathered and copied to the device as uint16 or uint32, and become int64 there.
    Pickles as its path and split.
    """

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    def __len__(self) -> int:
        """Return the stored samples: documents; rows in the layouts fixed and packed."""
        return len(self._store)

    def __getitem__(self, index: Any) -> NoReturn:
        """Refuse to give samples, always: SelectionError names the view that does."""
        self._store.refuse_index(index)

    def __repr__(self) -> str:
        return (
            f"TokenDataset({str(self.path)!r}, {self.split!r}: {len(self):,} samples, "
            f"{self.tokens:,} tokens, {self.dtype} in layout {self.layout})"
        )

    @property
    def path(self) -> Path:
        """The dataset's folder."""
        return self._store.path

    @property
    def split(self) -> str:
        """The split's name."""
        return self._store.split

    @property
    def manifest(self) -> Manifest:
        """The dataset's description."""
        return self._store.manifest

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest: names the exact dataset."""
        return self._store.fingerprint

    @property
    def layout(self) -> Layout:
        """How documents were stored: "stream", "fixed", "packed" or "chat"."""
        return self._store.layout

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the stored ids: uint16 or uint32."""
        return self._store.dtype

    @property
    def eos_id(self) -> int | None:
        """Id of the end of a text; None where the tokenizer has none."""
        return self._store.tokenizer_id("eos_id")

    @property
    def pad_id(self) -> int | None:
        """Id of padding; None where the tokenizer has none."""
        return self._store.tokenizer_id("pad_id")

    @property
    def largest_id(self) -> int | None:
        """The largest id that can occur: a model needs `largest_id + 1` embeddings."""
        return self._store.tokenizer_id("largest_id")

    @property
    def tokens(self) -> int:
        """Stored ids; in the layouts fixed and packed with the padding of their rows."""
        if not self._store.fields[TOKENS].ragged:
            return len(self) * self._store.width
        return int(self._store.ends[-1]) if len(self._store.ends) else 0

    def documents(self) -> TokenView:
        """Serve whole documents, of the layouts stream and chat.

        Returns:
            A dataset of {"tokens": int64 [n], "key": str} and "metadata", a dict, where stored. A
            batch is {"tokens": int64, all documents back to back, "lengths": int64 [B],
            "cu_seqlens": int32 [B + 1], "key": list} and "metadata".

        Raises:
            SelectionError: Another layout is stored.
        """
        self._store.expect_layout(".documents()", ("stream", "chat"))
        return TokenView(Documents(self._store, Labels(self._store)))

    def blocks(
        self,
        block_size: int,
        *,
        stride: int | None = None,
        tail: Tail = "drop",
        shown: Shown = "int64",
    ) -> TokenView:
        """Serve windows for language models over the whole split as one stream, in layout stream.

        Window i holds the tokens from i * stride on: x the first `block_size` of them, y the same
        shifted by one. Windows go on across documents and shards, so y needs one token more than
        x, and with the default stride every token is in exactly one x - up to the tail:

        - tail="drop": windows are whole. What is left at the end of the stream, at most
          `block_size` tokens with the last y counted in, is in no x.
        - tail="pad": one more window takes what is left. Its x is filled up with the padding id
          (the end-of-text id if there is none), its y with -100. The very last token, which has no
          next one, may be in y alone.

        Args:
            block_size: Tokens in x, and in y.
            stride: Tokens from one window to the next, up to `block_size`, its default.
            tail: "drop" or "pad".
            shown: "int64", what models take; or "stored", uint16 or uint32, for a loop that widens
                them itself (`x.long()`): less than half the time on the host, an eighth of the
                bytes. Only where windows are whole: -100 is no stored id.

        Returns:
            A dataset of {"x": int64 [block_size], "y": int64 [block_size]}; batches hold [B,
            block_size], contiguous; with shown="stored" x and y of a sample lie over one memory.

        Raises:
            SelectionError: Another layout is stored, an option is out of range, or the split is
                shorter than one window.
        """
        store = self._store
        store.expect_layout(".blocks()", ("stream",))
        if type(block_size) is not int or block_size < 1:
            raise SelectionError(f"block_size={block_size!r}: expected an integer of at least 1")
        step = block_size if stride is None else stride
        if type(step) is not int or not 1 <= step <= block_size:
            raise SelectionError(
                f"stride={stride!r}: expected an integer from 1 to block_size={block_size}"
            )
        if tail not in {"drop", "pad"}:
            raise SelectionError(f'tail={tail!r}: expected "drop" or "pad"')
        if shown not in {"int64", "stored"}:
            raise SelectionError(f'shown={shown!r}: expected "int64" or "stored"')
        if shown == "stored" and tail == "pad":
            raise SelectionError(
                f'shown="stored" with tail="pad": {store.dtype} has no -100 for the filled y: use '
                'shown="int64"'
            )
        fill = 0
        if tail == "pad":
            fill = store.fill(None, 'tail="pad" fills the last window', 'use tail="drop"')
        blocks = Blocks(store, block_size, step, tail, fill, shown)
        if not blocks.count:
            raise SelectionError(
                f"{self.path}: block_size={block_size} needs {block_size + 1} tokens, {self.split} "
                f'has {self.tokens}: use a smaller block_size or tail="pad"'
            )
        return TokenView(blocks)

    def padded(
        self, length: int | None = None, *, multiple: int | None = None, pad_id: int | None = None
    ) -> TokenView:
        """Serve one row a sample, filled up to a common length, of the layouts fixed and stream.

        Args:
            length: Of every row; longer samples are cut. None: the stored length in layout fixed,
                the longest of the batch in layout stream.
            multiple: Rows are as long as the longest of the batch, rounded up to a multiple of it.
            pad_id: What fills the rows in layout stream; the tokenizer's padding id by default,
                its end-of-text id if it has none. In layout fixed the padding is stored.

        Returns:
            A dataset of {"input_ids": int64 [L], "attention_mask": bool [L]}, with "key" and
            "metadata" where stored; for pairs of texts also "token_type_ids" int64 [L], 1 in the
            second text. Batches hold [B, L].

        Raises:
            SelectionError: Another layout is stored, or an option is out of range.
        """
        self._store.expect_layout(".padded()", ("fixed", "stream"))
        return TokenView(self._padded(length, multiple, pad_id))

    def chat(
        self, length: int | None = None, *, multiple: int | None = None, pad_id: int | None = None
    ) -> TokenView:
        """Serve conversations with labels, in layout chat.

        Args:
            length: Of every row; longer conversations are cut. None: the longest of the batch.
            multiple: The longest is rounded up to a multiple of it.
            pad_id: What fills the rows; the tokenizer's padding id by default, its end-of-text id
                if it has none.

        Returns:
            A dataset of {"tokens": int64 [L], "labels": int64 [L], "attention_mask": bool [L]},
            with "key" and "metadata" where stored; batches hold [B, L]. Labels are the tokens in
            their own places, not shifted; -100 where nothing is to be learned and in the padding.

        Raises:
            SelectionError: Another layout is stored, or an option is out of range.
        """
        self._store.expect_layout(".chat()", ("chat",))
        return TokenView(Chat(self._padded(length, multiple, pad_id)))

    def packed(self) -> TokenView:
        """Serve packed rows as they are stored, in layout packed.

        Padding at the end of a row is a segment of its own: it is counted in "cu_seqlens" and
        "max_seqlen", so that they cover `tokens.view(-1)` whole, has positions from 0, and the
        document id -1; leave out `document_ids < 0` in the loss. Documents without tokens keep
        their number and are no segment.

        Returns:
            A dataset of {"tokens": int64 [L], "position_ids": int64 [L], from 0 in each document,
            "document_ids": int64 [L], from 0 in each row, "cu_seqlens": int32 [segments + 1],
            "max_seqlen": int}; where stored with "key" and "metadata", lists with one for each
            document in the row. Batches hold [B, L], and "cu_seqlens" over all rows of the batch.
            `document_mask` turns "document_ids" into a mask for flex_attention.

        Raises:
            SelectionError: Another layout is stored.
        """
        self._store.expect_layout(".packed()", ("packed",))
        return TokenView(Packed(self._store, Labels(self._store)))

    def _padded(self, length: int | None, multiple: int | None, pad_id: int | None) -> Padded:
        store = self._store
        width = checked_width(store, length, multiple)
        if store.layout == "fixed" and pad_id is not None:
            raise SelectionError(
                f"{store.path}: pad_id={pad_id}: layout fixed has its padding stored; leave it out"
            )
        fill = 0
        if store.layout != "fixed":
            fill = store.fill(pad_id, "rows need padding", "give pad_id=...")
        return Padded(store, width, fill, Labels(store))
