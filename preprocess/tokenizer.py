"""The tokenizer: found, loaded by transformers, described. Its ids are every engine's reference.

Path of a name: `find_tokenizer` says which files it means (never a download); `TextTokenizer` loads
them and knows the facts that storing ids needs.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from preprocess.engine_specials import contains_any, late_hits, speak_plainly
from preprocess.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

Specials = Literal["text", "parse", "error"]

# What transformers reads of a tokenizer's folder. config.json is among them because AutoTokenizer
# chooses the class by it where tokenizer_config.json does not name one.
_PATTERNS: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "config.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.model",
    "*.tiktoken",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/*.jinja",
)
_NOT_ENOUGH: Final = frozenset({"config.json", "chat_template.jinja", "chat_template.json"})
_UINT16_LARGEST: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSource:
    """Where a tokenizer is: enough to load it again in any process, and to copy it.

    Attributes:
        path: Absolute folder or file that is loaded.
        files: The files that make it, relative to the folder, in the order of the digest.
        sha256: Over the names and the bytes of the files.
    """

    path: Path
    files: tuple[str, ...]
    sha256: str

    @property
    def folder(self) -> Path:
        """The folder that `files` are in."""
        return self.path.parent if self.path.is_file() else self.path

    def copies(self) -> dict[str, Path]:
        """Give the names of the files in a folder of their own, where each is loaded by its name.

        A lone file may be called anything where it lies.
        """
        if self.path.is_file():
            return {"tokenizer.json": self.path}
        return {name: self.folder / name for name in self.files}


def find_tokenizer(name_or_path: str) -> TokenizerSource:
    """Find a tokenizer on this machine; nothing is ever downloaded.

    Args:
        name_or_path: A folder with a tokenizer, a `tokenizer.json` (with `tokenizer_config.json`
            beside it the whole folder is meant), or a name in the local Hugging Face cache.

    Returns:
        The files, with their digest.

    Raises:
        SourceError: There is no such tokenizer here, or not in a form that can be loaded.
    """
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        return _source_of_folder(path.absolute())
    if path.is_file():
        return _source_of_file(path.absolute())
    return _source_of_folder(_cached_folder(name_or_path))


def _source_of_folder(folder: Path) -> TokenizerSource:
    files = tuple(
        found.relative_to(folder).as_posix()
        for pattern in _PATTERNS
        for found in sorted(folder.glob(pattern))
        if found.is_file()
    )
    if not set(files) - _NOT_ENOUGH:
        raise SourceError(
            f"{folder}: no tokenizer in this folder: tokenizer.json is expected, as "
            "save_pretrained of a transformers tokenizer writes it"
        )
    return _source(folder, folder, files)


def _source_of_file(path: Path) -> TokenizerSource:
    if path.suffix != ".json":
        raise SourceError(
            f"{path}: a tokenizer.json is expected. A tiktoken or sentencepiece file holds neither "
            "the splitting rule nor the special tokens: convert it once with transformers "
            "(transformers.integrations.tiktoken.convert_tiktoken_to_fast, or "
            "AutoTokenizer.from_pretrained and save_pretrained) and give the folder"
        )
    if path.name == "tokenizer.json" and (path.parent / "tokenizer_config.json").is_file():
        return _source_of_folder(path.parent)
    return _source(path, path.parent, (path.name,))


def _source(path: Path, folder: Path, files: tuple[str, ...]) -> TokenizerSource:
    digest = hashlib.sha256()
    for name in files:
        data = (folder / name).read_bytes()
        # The lengths keep two different sets of files from giving the same bytes.
        digest.update(f"{len(name.encode())} {len(data)} {name}".encode() + data)
    return TokenizerSource(path=path, files=files, sha256=digest.hexdigest())


def _cached_folder(name: str) -> Path:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            found = try_to_load_from_cache(name, file)
            if isinstance(found, str):
                return Path(found).parent
    except HFValidationError as error:
        raise SourceError(
            f"{name}: no such folder or file, and no name of a Hugging Face repository"
        ) from error
    raise SourceError(
        f"{name}: no such folder or file, and not in the local Hugging Face cache; nothing is "
        f'downloaded here: run "hf download {name}" first, or give a folder with tokenizer.json'
    )


class TextTokenizer:
    """A loaded tokenizer; encoding is safe from several threads.

    Attributes:
        source: What was loaded.
        specials: What text that looks like a special token becomes: `text` ordinary tokens, `parse`
            the special ids (as transformers does when nothing is said), `error` is refused by the
            caller, who asks `special_hits`; encoded all the same, it is as `text`.
        pretrained: The transformers tokenizer (chat templates, names of the special tokens).
        backend: The `tokenizers.Tokenizer`, padding and truncation off, set to `specials`.
        cleaned: The same as JSON, before `specials`: what the engines load.
        largest_id: Over the vocabulary with all added tokens.
        dtype: The narrowest of uint16 and uint32 that holds `largest_id`.
        eos_id: End of a document, None where there is none; so are `bos_id`, `pad_id`, `unk_id`.
        prefix_ids: What is put before one text where special tokens are added.
        suffix_ids: What is put after it.
        special_texts: The texts that are read as special tokens.
    """

    def __init__(self, source: TokenizerSource, *, specials: Specials = "text") -> None:
        self.source = source
        self.specials: Specials = specials
        self.pretrained: Any = _load(source)
        self.cleaned: str = _cleaned(self.pretrained.backend_tokenizer)
        # A copy: every call of the transformers tokenizer sets padding, truncation and the way with
        # special tokens on its own.
        self.backend: Any = _from_json(self.cleaned)
        self.largest_id: int = max(self.backend.get_vocab(with_added_tokens=True).values())
        self.dtype: Literal["uint16", "uint32"] = (
            "uint16" if self.largest_id <= _UINT16_LARGEST else "uint32"
        )
        self.eos_id: int | None = self.pretrained.eos_token_id
        self.bos_id: int | None = self.pretrained.bos_token_id
        self.pad_id: int | None = self.pretrained.pad_token_id
        self.unk_id: int | None = self.pretrained.unk_token_id
        self.prefix_ids, self.suffix_ids = self._around()
        added = self.backend.get_added_tokens_decoder()
        self.special_ids: dict[str, int] = {
            token.content: number for number, token in sorted(added.items()) if token.special
        }
        self.special_texts: tuple[str, ...] = tuple(self.special_ids)
        # A token that is looked for in the normalized text cannot be found in the text itself.
        self._late: bool = self.backend.normalizer is not None and any(
            token.special and token.normalized for token in added.values()
        )
        if specials != "parse":
            unknown = self.unknown[1] if self.unknown else None
            speak_plainly(self.backend, self.cleaned, self.special_ids, unknown)

    def id_of(self, token: str) -> int:
        """Give the id of one token by its text.

        Raises:
            SourceError: The vocabulary has no such token.
        """
        number: int | None = self.backend.token_to_id(token)
        if number is None:
            known = ", ".join(self.special_texts[:8]) or "none"
            raise SourceError(
                f"{token!r} is not a token of {self.source.path}; its special tokens: {known}"
            )
        return number

    def decode(self, ids: "Sequence[int] | NDArray[Any]") -> str:
        """Give the text of some ids, special tokens included."""
        text: str = self.backend.decode([int(one) for one in ids], skip_special_tokens=False)
        return text

    def special_hits(self, texts: "pa.LargeStringArray") -> "NDArray[np.bool_]":
        """Say which texts hold the text of a special token.

        Args:
            texts: [N] strings without nulls.

        Returns:
            [N] bool.
        """
        if not self.special_texts or not len(texts):
            return np.zeros(len(texts), np.bool_)
        if not self._late:
            return contains_any(texts, self.special_texts)
        return late_hits(texts, self._parsing, self.special_ids, self.unknown)

    @cached_property
    def unknown(self) -> tuple[str, int] | None:
        """Text and id of what the model gives for what it does not know, where it has such."""
        model = json.loads(self.cleaned)["model"]
        if model.get("unk_token") is not None:
            text: str = model["unk_token"]
            return text, self.id_of(text)
        number: int | None = model.get("unk_id")
        return None if number is None else (model["vocab"][number][0], number)

    @property
    def late(self) -> bool:
        """Whether some special tokens are looked for only after the text was normalized."""
        return self._late

    @cached_property
    def _parsing(self) -> Any:
        return _from_json(self.cleaned)

    def pair_frame(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Give what is put before, between and after two texts where special tokens are added.

        Raises:
            SourceError: The tokenizer does not put the first text before the second one.
        """
        encoding = self._parsing.encode("a", "a", add_special_tokens=True)
        parts: tuple[list[int], ...] = ([], [], [])
        texts = [text for text in encoding.sequence_ids if text is not None]
        if texts != sorted(texts) or set(texts) != {0, 1}:
            raise SourceError(f"{self.source.path}: does not put a pair's first text first")
        reached = 0
        for number, text in zip(encoding.ids, encoding.sequence_ids, strict=True):
            if text is None:
                parts[reached].append(number)
            else:
                reached = text + 1
        return tuple(parts[0]), tuple(parts[1]), tuple(parts[2])

    def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        plain: list[int] = self.backend.encode("a", add_special_tokens=False).ids
        whole: list[int] = self.backend.encode("a", add_special_tokens=True).ids
        for start in range(len(whole) - len(plain) + 1):
            if whole[start : start + len(plain)] == plain:
                return tuple(whole[:start]), tuple(whole[start + len(plain) :])
        raise SourceError(
            f"{self.source.path}: with special tokens, a text is encoded to other ids than without"
        )


def _cleaned(backend: Any) -> str:
    """Give a tokenizer as JSON, without the padding and truncation that a file may carry."""
    content = json.loads(backend.to_str())
    return json.dumps(content | {"padding": None, "truncation": None}, ensure_ascii=False)


def _from_json(content: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(content)


def _load(source: TokenizerSource) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    tokenizer: Any
    file_class: Any = PreTrainedTokenizerFast
    try:
        if source.path.is_file():
            tokenizer = file_class(tokenizer_file=str(source.path))
        else:
            tokenizer = AutoTokenizer.from_pretrained(
                str(source.path), local_files_only=True, trust_remote_code=False, use_fast=True
            )
    except Exception as error:
        # The tokenizers package raises plain Exception, transformers half a dozen kinds.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise SourceError(
            f"{source.path}: transformers cannot load this tokenizer: {lines[0]}; save it with "
            "save_pretrained of a fast tokenizer (tokenizer.json)"
        ) from error
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise SourceError(
            f"{source.path}: {type(tokenizer).__name__} is a tokenizer written in Python, without "
            "tokenizer.json; give a fast tokenizer (convert it, save_pretrained, give the folder)"
        )
    return tokenizer
