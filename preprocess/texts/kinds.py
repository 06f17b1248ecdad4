"""What a text file is: its kind by name, its compression and encoding by content."""

import codecs
import os
from typing import Final, Literal

Kind = Literal["text", "json", "csv", "tsv", "parquet", "arrow"]
"""How a file holds its texts: as one text, or as records of one of these forms."""

Compression = Literal["gzip", "bzip2", "xz", "zstd"]

HEAD_NBYTES: Final = 512
"""Leading bytes that the functions below look at."""

_LETTERS: Final = 64
"""Bytes of them whose letters tell UTF-16: further on there may be others."""

COMPRESSED_ENDINGS: Final = (".gz", ".bgz", ".bz2", ".xz", ".zst", ".zstd")

# fmt: off
_TEXT_ENDINGS: Final = (
    ".txt", ".text", ".md", ".markdown", ".mdx", ".rst", ".adoc", ".org", ".tex", ".bib", ".log",
    ".srt", ".vtt", ".html", ".htm", ".xhtml", ".xml", ".c", ".h", ".cc", ".cpp", ".cxx", ".hh",
    ".hpp", ".cu", ".cuh", ".cs", ".java", ".kt", ".scala", ".go", ".rs", ".swift", ".py", ".pyi",
    ".pyx", ".rb", ".pl", ".php", ".lua", ".r", ".jl", ".hs", ".ml", ".ex", ".erl", ".clj", ".lisp",
    ".f90", ".js", ".jsx", ".mjs", ".tsx", ".vue", ".css", ".scss", ".sql", ".sh", ".bash", ".zsh",
    ".ps1", ".bat", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".proto", ".graphql",
    ".cmake", ".asm", ".sv",
)
# fmt: on

_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(_TEXT_ENDINGS, "text"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
}

UNOPENED_ENDINGS: Final = frozenset({*_KINDS, *COMPRESSED_ENDINGS} - {".json"})
"""Endings that are taken by name. Of .json, settings of tools are passed over by content."""

# Source: RFC 1952, RFC 8878 (frames and skippable frames), the xz file format 1.2, and for bzip2
# its signature and the block or end marks that follow it: "BZh" alone may begin a text.
_GZIP: Final = b"\x1f\x8b\x08"
_XZ: Final = b"\xfd7zXZ\0"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
_BZIP2_MARKS: Final = (b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90")

_PARQUET: Final = b"PAR1"
_ARROW_FILE: Final = b"ARROW1"
_NOT_TEXT: Final = (
    (_PARQUET, "a Parquet file"),
    (_ARROW_FILE, "an Arrow file"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
)

# UTF-32 before UTF-16: its little-endian mark begins with the other's.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def kind_by_name(key: str) -> Kind | None:
    """Name the kind by the ending, after that of a compression; None for other endings."""
    return _KINDS.get(inner_ending(key))


def inner_ending(key: str) -> str:
    """Return the lower-case ending of a name, without that of a compression."""
    stem, ending = os.path.splitext(key.rpartition("/")[2].lower())
    return os.path.splitext(stem)[1] if ending in COMPRESSED_ENDINGS else ending


def kind_by_content(head: bytes) -> Kind | None:
    """Name the kind of a file by its first bytes; None for plain text and for the unknown."""
    if head.startswith(_PARQUET):
        return "parquet"
    if head.startswith(_ARROW_FILE):
        return "arrow"
    return "json" if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in {b"{", b"["} else None


def is_input(head: bytes) -> bool:
    """Whether a file whose ending says nothing may hold texts."""
    # The one file of a saved dataset that lies above its splits; those beside the data are
    # passed over by name.
    if head.startswith(b'{"splits": ['):
        return False
    marked = byte_order_mark(head) is not None
    return marked or compression_of(head) is not None or kind_by_content(head) is not None


def is_arrow_file(head: bytes) -> bool:
    """Whether this is Arrow's file format, and not its stream format."""
    return head.startswith(_ARROW_FILE)


def compression_of(head: bytes) -> Compression | None:
    """Name the compression by content."""
    if head.startswith(_GZIP):
        return "gzip"
    if head.startswith(_XZ):
        return "xz"
    if head.startswith(_ZSTD) or (
        head[:1] and 0x50 <= head[0] <= 0x5F and head[1:4] == _ZSTD_SKIPPABLE
    ):
        return "zstd"
    if head.startswith(b"BZh") and head[4:10] in _BZIP2_MARKS:
        return "bzip2"
    return None


def byte_order_mark(head: bytes) -> tuple[bytes, str] | None:
    """Return the mark that a file begins with and the encoding that it stands for."""
    return next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), None)


def archive_of(head: bytes) -> str | None:
    """Name the kind of an archive of files by its first bytes; None for what is none.

    Source:
        ZIP: APPNOTE 6.3.10, section 4.3.7; tar: POSIX.1-1988 "ustar" at byte 257 of its header.
    """
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "a ZIP archive"
    return "a tar archive" if head[257:262] == b"ustar" else None


def why_not_text(head: bytes) -> str | None:
    """Say what a file is that should be text and is known to be something else."""
    if (archive := archive_of(head)) is not None:
        return f"{archive}; unpack it, and give the folder"
    for magic, name in _NOT_TEXT:
        if head.startswith(magic):
            return f"{name}, whatever its name says"
    # Letters of UTF-16 without a mark would pass for UTF-8: letter, NUL, letter, NUL.
    head = head[:_LETTERS]
    if len(head) >= 8 and (not any(head[1::2]) or not any(head[::2])) and any(head):
        return "looks like UTF-16 without a byte order mark; name it with --encoding utf-16-le"
    return None
