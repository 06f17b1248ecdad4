"""One split of a tokens dataset: which layout it has, and what its manifest says of its ids."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import numpy as np

from loaders.errors import FormatError, SelectionError
from loaders.format.promised import expect_sizes
from loaders.format.spec import Manifest, read_manifest
from loaders.split_columns import SplitColumns
from loaders.token_files import TokenFile, described

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loaders.format.fields import FieldSpec

Layout = Literal["stream", "fixed", "packed", "chat"]
TokenizerId = Literal["eos_id", "pad_id", "largest_id"]

TOKENS: Final = "tokens"
LENGTH: Final = "length"
PAIR_START: Final = "pair_start"
DOCUMENT_LENGTHS: Final = "document_lengths"
LOSS_MASK: Final = "loss_mask"
KEY: Final = "key"
METADATA: Final = "metadata"

_LAYOUTS: Final[Mapping[str, Layout]] = {
    LENGTH: "fixed",
    DOCUMENT_LENGTHS: "packed",
    LOSS_MASK: "chat",
}
"""Field that only one layout has -> that layout; without any of them it is "stream"."""


class TokenStore:
    """Stored tokens and what belongs to them; maps are opened when first touched.

    Pickles as its path and split, or as the call that opened the file. Maps are read-only and safe
    across fork.

    Args:
        path: The dataset's folder, or the file.
        split: The split's name.
        file: Another trainer's file, opened: it stands for a dataset of one shard, layout stream.
        name: The field of the tokens, called "tokens" here: one of several columns has its own.
        verify: Compare checksums when shards are first touched.

    Attributes:
        path: The dataset's folder.
        split: The split's name.
        manifest: The dataset's description.
        layout: How documents became samples.
        fields: The stored fields by name; of a table its texts alone.
        columns: Where they lie.
        dtype: Of the stored tokens.
        ends: [shards] int64, where the tokens of each shard end in the stream of the split; empty
            where rows of one length are stored.

    Raises:
        SelectionError: It holds no tokens, or not this split.
        MissingShardError: A file of the split is not there.
        FormatError: The manifest is damaged, or a file was cut or extended.
    """

    def __init__(
        self,
        path: Path,
        split: str,
        file: TokenFile | None = None,
        *,
        name: str = TOKENS,
        verify: bool = False,
    ) -> None:
        self.path = path
        self.split = split
        self._verify = verify
        self._file = file
        self._name = name
        self.manifest: Manifest = read_manifest(path) if file is None else described(file, split)
        held = {field.name for spec in self.manifest.splits.values() for field in spec.fields}
        if self.manifest.kind != "tokens" and name not in held:
            several = f"{name}_0000" in held
            what = "the tokens of several columns" if several else "no tokens"
            remedy = "open_table" if self.manifest.kind == "table" else "open_dataset"
            raise SelectionError(
                f"{path}: a dataset of kind {self.manifest.kind!r} holds {what}: open it with "
                f"loaders.{remedy}"
            )
        if split not in self.manifest.splits:
            stored = ", ".join(self.manifest.splits)
            raise SelectionError(f"{path}: no split {split!r}; stored are {stored}: give split=...")
        spec = self.manifest.splits[split]
        is_table = self.manifest.kind != "tokens"  # its other fields are no part of the texts
        own = [field for field in spec.fields if field.name == name or not is_table]
        self.fields: Mapping[str, FieldSpec] = {
            TOKENS if field.name == name else field.name: field for field in own
        }
        if TOKENS not in self.fields:
            raise FormatError(f"{path}: {split} has no field {TOKENS!r}, only {[*self.fields]}")
        self.dtype: np.dtype[Any] = self.fields[TOKENS].numpy_dtype
        found = [layout for name, layout in _LAYOUTS.items() if name in self.fields]
        self.layout: Layout = found[0] if found else "stream"
        if len(found) > 1 or self.fields[TOKENS].ragged != (self.layout in {"stream", "chat"}):
            raise FormatError(f"{path}: {split} has the fields {[*self.fields]}, of no one layout")
        self.ends: NDArray[np.int64] = np.cumsum(spec.values.get(name, ()), dtype=np.int64)
        self._spec = spec
        given = {}
        if file is None:
            expect_sizes(path, self.manifest, split)
        else:
            given = {TOKENS: file.values, f"{TOKENS}_offsets": file.offsets.view("<i8")}
        self.columns = SplitColumns(
            path, split, self.manifest, verify=verify, given=given, called={TOKENS: name}
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file is not None:
            return TokenStore, (self.path, self.split, self._file)
        return _reopen, (self.path, self.split, self.fingerprint, self._name, self._verify)

    def __len__(self) -> int:
        return self._spec.count

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest: names the exact dataset."""
        return hashlib.sha256(self.manifest.to_bytes()).hexdigest()

    @property
    def width(self) -> int:
        """Ids in a stored row of the layouts with rows of one length."""
        return self.fields[TOKENS].shape[0]

    def tokenizer_id(self, name: TokenizerId) -> int | None:
        """Return an id that the manifest states; None where it does not."""
        tokenizer = self.manifest.recipe.get("tokenizer")
        value = tokenizer.get(name) if isinstance(tokenizer, dict) else None
        most = int(np.iinfo(self.dtype).max)
        if value is not None and not (type(value) is int and 0 <= value <= most):
            raise FormatError(
                f"{self.path}: recipe.tokenizer.{name} is {value!r}, not an integer in 0..{most}"
            )
        return value

    def fill(self, given: int | None, why: str, remedy: str) -> int:
        """Return the id that stands where there is no token: given, padding, or end of text.

        Raises:
            SelectionError: There is none, or it is no id.
        """
        stated = (given, self.tokenizer_id("pad_id"), self.tokenizer_id("eos_id"))
        chosen = next((value for value in stated if value is not None), None)
        if chosen is None:
            raise SelectionError(
                f"{self.path}: {why}, and its tokenizer has no padding and no end-of-text token: "
                f"{remedy}"
            )
        if type(chosen) is not int or not 0 <= chosen <= np.iinfo(self.dtype).max:
            raise SelectionError(f"pad_id={chosen!r}: expected an id that {self.dtype} can hold")
        return chosen

    def refuse_index(self, index: Any) -> NoReturn:
        """Refuse to give a sample: what one is, a view says.

        Raises:
            SelectionError: Always.
        """
        shown = index if isinstance(index, int) else "..."
        raise SelectionError(
            f"{self.path}: [{shown}] of a TokenDataset: its views have samples: use "
            f"{_SERVED[self.layout]} of it"
        )

    def expect_layout(self, what: str, allowed: tuple[Layout, ...]) -> None:
        """Refuse a view that does not suit the stored layout.

        Args:
            what: The view, as users write it.
            allowed: Layouts that suit.

        Raises:
            SelectionError: Another layout is stored.
        """
        if self.layout not in allowed:
            raise SelectionError(
                f"{self.path}: {what} needs layout {' or '.join(allowed)}, stored is "
                f"{self.layout}: use {_SERVED[self.layout]}, or prepare the text again with "
                f"--layout {allowed[0]}"
            )


_SERVED: Final[Mapping[Layout, str]] = {
    "stream": ".blocks(), .documents() or .padded()",
    "fixed": ".padded()",
    "packed": ".packed()",
    "chat": ".chat() or .documents()",
}


def _reopen(path: Path, split: str, fingerprint: str, name: str, verify: bool) -> TokenStore:  # noqa: FBT001
    """Open the dataset again in another process, and only the very same one."""
    store = TokenStore(path, split, name=name, verify=verify)
    if store.fingerprint != fingerprint:
        raise FormatError(f"{path}: the dataset was replaced while it was open; open it again")
    return store
