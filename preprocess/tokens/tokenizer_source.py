"""Where a tokenizer is on this machine, and which files make it; nothing is ever downloaded."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from preprocess.errors import SourceError
from preprocess.tokens.tokenizer_tiktoken import (
    Readable,
    TiktokenFile,
    copy_tiktoken,
    digest_tiktoken,
    is_tiktoken,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSource:
    """Where a tokenizer is: enough to load it again in any process, and to copy it.

    Attributes:
        path: Absolute folder or file that is loaded.
        files: The files that make it, relative to the folder, in the order of the digest.
        sha256: Over the names and the bytes of the files; of a tiktoken file, over its bytes and
            what was said of it.
        tiktoken: Set where `path` is a tiktoken file.
    """

    path: Path
    files: tuple[str, ...]
    sha256: str
    tiktoken: TiktokenFile | None = None

    @property
    def folder(self) -> Path:
        """The folder that `files` are in."""
        return self.path.parent if self.path.is_file() else self.path

    def copies(self) -> Mapping[str, Readable]:
        """Give the names of the files in a folder of their own, where each is loaded by its name.

        A lone file may be called anything where it lies; a tiktoken file is converted.
        """
        if self.tiktoken is not None:
            return copy_tiktoken(self.tiktoken, self.sha256)
        if self.path.is_file():
            return {"tokenizer.json": self.path}
        return {name: self.folder / name for name in self.files}


def find_tokenizer(name_or_path: str | TiktokenFile) -> TokenizerSource:
    """Find a tokenizer on this machine; nothing is ever downloaded.

    Args:
        name_or_path: A folder with a tokenizer, a `tokenizer.json` (with `tokenizer_config.json`
            beside it the whole folder is meant), a tiktoken file, or a name in the local Hugging
            Face cache.

    Returns:
        The files, with their digest.

    Raises:
        SourceError: There is no such tokenizer here, or not in a form that can be loaded.
    """
    path = Path(str(name_or_path)).expanduser()
    given = name_or_path if isinstance(name_or_path, TiktokenFile) else None
    if is_tiktoken(path):
        return _source_of_tiktoken(path.absolute(), given or TiktokenFile(path=str(path)))
    if given is not None:
        raise SourceError(
            f"{given}: no tiktoken file (lines of base64 and rank); --tiktoken-pattern is "
            "for such files only, every other tokenizer has its own pattern"
        )
    if path.is_dir():
        return _source_of_folder(path.absolute())
    if path.is_file():
        return _source_of_file(path.absolute())
    return _source_of_folder(_cached_folder(str(name_or_path)))


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
            f"{path}: a tokenizer.json is expected, or a tiktoken file (lines of base64 and rank), "
            "which this is not. A sentencepiece file is not enough: convert it once with "
            "transformers (AutoTokenizer.from_pretrained and save_pretrained) and give the folder"
        )
    if path.name == "tokenizer.json" and (path.parent / "tokenizer_config.json").is_file():
        return _source_of_folder(path.parent)
    return _source(path, path.parent, (path.name,))


def _source_of_tiktoken(path: Path, given: TiktokenFile) -> TokenizerSource:
    file = replace(given, path=str(path))
    sha256 = digest_tiktoken(file)
    return TokenizerSource(path=path, files=(path.name,), sha256=sha256, tiktoken=file)


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
