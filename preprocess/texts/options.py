"""How texts are read: the user's options."""

import codecs
from dataclasses import asdict, dataclass
from typing import Any, Final

from preprocess.spelling import Option, OptionError, check_names

MAX_DOCUMENT_NBYTES: Final = 64_000_000
"""Default: far above any text that was written by hand; a few hundred MB while it is encoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """Where the texts of a source lie and how its bytes become text.

    Attributes:
        text_key: The text: a dotted path `a.b` into JSON objects and struct columns; the name of
            a column of CSV. A column whose name is exactly this wins over a path.
        pair_key: A second text of the same record, found alike.
        metadata_keys: What is kept of each record, found alike: one JSON object a document, with
            null for what a record does not have.
        lines: Plain text files hold one document a line instead of one a file. Lines end at
            line feeds only, a carriage return before one is dropped, and an empty line is no
            document.
        json_values: The texts are the JSON of the value at `text_key`, whatever it is.
        encoding: Of files without a byte order mark; None for UTF-8. Marks are removed.
        errors: "refuse" the records or files that are not valid text, or "replace" each fault
            with U+FFFD.
        max_document_nbytes: Documents and records of more bytes are refused by name: each is held
            in memory whole, with its tokens.
        max_item_nbytes: Files of more bytes, or that decompress to more, are refused by name; None
            for any size: of a file no more is in memory than some blocks, or a document.
        follow_links: Take what symbolic links in the source point to.
    """

    text_key: str = "text"
    pair_key: str | None = None
    metadata_keys: tuple[str, ...] = ()
    lines: bool = False
    json_values: bool = False
    encoding: str | None = None
    errors: str = "refuse"
    max_document_nbytes: int = MAX_DOCUMENT_NBYTES
    max_item_nbytes: int | None = None
    follow_links: bool = False

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        check_names(self, "metadata_keys")
        for name in ("text_key", "pair_key"):
            if getattr(self, name) == "":
                raise OptionError(Option(name, ""), ": expected the name of a key")
        if "" in self.metadata_keys or len(set(self.metadata_keys)) != len(self.metadata_keys):
            raise OptionError(
                Option("metadata_keys", self.metadata_keys), ": expected names, each once"
            )
        if self.errors not in {"refuse", "replace"}:
            raise OptionError(Option("errors", self.errors), ": expected 'refuse' or 'replace'")
        if self.max_document_nbytes < 1:
            raise OptionError(
                Option("max_document_nbytes", self.max_document_nbytes), ": expected 1 or more"
            )
        if self.max_item_nbytes is not None and self.max_item_nbytes < 1:
            raise OptionError(
                Option("max_item_nbytes", self.max_item_nbytes), ": expected 1 or more"
            )
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except (LookupError, UnicodeError) as error:
                raise OptionError(
                    Option("encoding", self.encoding), ": no text encoding of that name"
                ) from error

    def refusal_of(self, nbytes: int) -> str:
        """Say why a document of so many bytes is not taken."""
        return (
            f"{nbytes:,} bytes, documents may have {self.max_document_nbytes:,}; raise "
            "--max-document, or cut the text (--lines makes a document of each line of text files)"
        )

    def recorded(self) -> dict[str, Any]:
        """Return all of it, as JSON values."""
        values = asdict(self)
        if self.max_item_nbytes is None:
            del values["max_item_nbytes"]  # datasets are older than this option
        return values

    @property
    def replaces(self) -> bool:
        """Whether faults in the text become U+FFFD."""
        return self.errors == "replace"

    @property
    def other_encoding(self) -> str | None:
        """The encoding, where it is not UTF-8."""
        if self.encoding is None:
            return None
        name = codecs.lookup(self.encoding).name
        return None if name in {"utf-8", "utf-8-sig", "ascii"} else name
