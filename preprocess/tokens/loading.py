"""What a tokenizer is made of: by transformers, here or in a process apart, and before it is done.

As long as another process is at it, this one goes on with what the tokenizers package alone reads
of the same file. That counts only once both are known to be the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from preprocess.errors import SourceError
from preprocess.tokens.apart import Process, answer, ask
from preprocess.tokens.tokenizer_source import TokenizerSource
from preprocess.tokens.tokenizer_tiktoken import load_tiktoken


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedIds:
    """The ids of the special tokens that have names; None where there is none."""

    eos_id: int | None
    bos_id: int | None
    pad_id: int | None
    unk_id: int | None


@dataclass(frozen=True, slots=True)
class Given:
    """What a `TextTokenizer` is made of.

    Attributes:
        content: All that the ids of a text without special tokens depend on: see `plain_content`.
        whole: Gives all of the tokenizer, as JSON; may have to wait for it.
        named: Gives the ids of its named tokens; may have to wait for them.
        pretrained: The tokenizer of transformers, where it is in this process.
        backend: A `tokenizers.Tokenizer` of `content`, where there is one to be changed at will.
    """

    content: str
    whole: Callable[[], str]
    named: Callable[[], NamedIds]
    pretrained: Any = None
    backend: Any = None


class Loading:
    """A tokenizer that is being loaded.

    Args:
        source: Where its files are.
        process: Does it, as `loader_started` gives it; None to load it here, when it is asked for.
    """

    def __init__(self, source: TokenizerSource, process: Process | None) -> None:
        self.source = source
        self._process = process
        self._given: Given | None = None
        self._error: SourceError | None = None
        if process is not None:
            ask(process, source)

    def given(self) -> Given:
        """Give what transformers makes of the tokenizer; waits for it.

        Raises:
            SourceError: It cannot be loaded.
        """
        if self._error is not None:
            raise self._error
        if self._given is None:
            process = self._process
            try:
                self._given = load_here(self.source) if process is None else self._told(process)
            except SourceError as error:
                self._error = error  # the process says it once
                raise
        return self._given

    def _told(self, process: Process) -> Given:
        told = answer(process)
        if told is None:
            code = process.returncode
            cause = "memory may have run out" if code < 0 else "what it wrote stands above"
            raise SourceError(
                f"{self.source.path}: the process that loads it by transformers ended with code "
                f"{code} ({cause}); give the command again"
            )
        if "error" in told:
            raise SourceError(told["error"])
        named = NamedIds(**told["named"])
        return Given(told["content"], lambda: told["whole"], lambda: named)

    def guess(self) -> Given | None:
        """Give what the tokenizers package alone makes of the same file, to go on with.

        It counts only if `agrees` says so. Most tokenizers are the same for both; some classes of
        transformers take only the vocabulary from the file.

        Returns:
            None where there is nothing to wait for, or no such file.

        Raises:
            SourceError: The package cannot read it; transformers will say what is wrong.
        """
        path = self.source.path
        file = path if path.is_file() else path / "tokenizer.json"
        if self._process is None or self.source.tiktoken is not None or not file.is_file():
            return None
        from tokenizers import Tokenizer

        try:
            backend = Tokenizer.from_file(str(file))
        except Exception as error:
            raise SourceError(f"{file}: {error}") from error
        return Given(
            plain_content(backend),
            lambda: self.given().whole(),
            lambda: self.given().named(),
            backend=backend,
        )

    def agrees(self, guess: Given) -> bool:
        """Whether a guess is what transformers has made; waits for it.

        Raises:
            SourceError: It cannot be loaded.
        """
        return guess.content == self.given().content


def load_here(source: TokenizerSource) -> Given:
    """Load a tokenizer by transformers, in this process.

    Raises:
        SourceError: It cannot be loaded.
    """
    from tokenizers import Tokenizer

    pretrained = load_pretrained(source)
    whole, named = pretrained.backend_tokenizer.to_str(), named_ids(pretrained)
    # A copy: every call of the transformers tokenizer sets padding, truncation and the way with
    # special tokens on its own.
    backend = Tokenizer.from_str(whole)
    return Given(plain_content(backend), lambda: whole, lambda: named, pretrained, backend)


def named_ids(pretrained: Any) -> NamedIds:
    """Return the ids of the named tokens of a transformers tokenizer."""
    return NamedIds(
        eos_id=pretrained.eos_token_id,
        bos_id=pretrained.bos_token_id,
        pad_id=pretrained.pad_token_id,
        unk_id=pretrained.unk_token_id,
    )


def plain_content(backend: Any) -> str:
    """Switch off all that does not belong to a text's own ids; return the rest, as JSON.

    That is padding, truncation and the special tokens around texts. Of BPE's two affixes, which are
    put to pieces, an empty one is as none: equal content means equal ids.

    Args:
        backend: A `tokenizers.Tokenizer`, changed in place.
    """
    backend.no_padding()
    backend.no_truncation()
    backend.post_processor = None
    content: str = backend.to_str()
    if '"model":{"type":"BPE",' in content:
        for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
            # Within the texts of a JSON these quotes would have backslashes.
            content = content.replace(f'"{affix}":""', f'"{affix}":null')
    return content


def load_pretrained(source: TokenizerSource) -> Any:
    """Load the tokenizer of transformers.

    Raises:
        SourceError: It cannot be loaded, or is not of the tokenizers package.
    """
    if source.tiktoken is not None:
        return load_tiktoken(source.tiktoken, source.sha256)
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
