"""What a user asks of single columns: `schema.toml`, read and written."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from loaders.format.table_schema import ColumnDtype, ColumnKind
from preprocess.errors import SourceError

Kind = ColumnKind | Literal["numeric", "text", "ignore"]

KINDS: Final = (*get_args(ColumnKind), "numeric", "text", "ignore")

_MAX_BUCKETS: Final = (1 << 31) - 2
_MAX_COUNT: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked of one column; None leaves it to what is in it.

    Attributes:
        kind: What its values are; "numeric" for any kind of number, "ignore" leaves it out.
        dtype: Stored type.
        buckets: Its values are hashed into so many.
        min_count: Values that occur less often in train share the code of unknown ones.
    """

    kind: Kind | None = None
    dtype: ColumnDtype | None = None
    buckets: int | None = None
    min_count: int | None = None


def read_wishes(path: Path) -> dict[str, Wish]:
    """Read `schema.toml`: a table `[columns.NAME]` for each column that something is asked of.

    Raises:
        SourceError: The file cannot be read, or asks for what there is not.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: not TOML: {error}") from error
    columns = document.get("columns")
    if set(document) != {"columns"} or not isinstance(columns, dict):
        raise SourceError(f"{path}: expected tables [columns.NAME], got {sorted(document)}")
    return {name: _wish(path, name, entry) for name, entry in columns.items()}


def _wish(path: Path, name: str, entry: Any) -> Wish:
    where = f"{path}: columns.{json.dumps(name, ensure_ascii=False)}"
    keys = {"kind", "dtype", "buckets", "min_count"}
    if not isinstance(entry, dict) or set(entry) - keys:
        unknown = sorted(set(entry) - keys) if isinstance(entry, dict) else entry
        raise SourceError(f"{where}: got {unknown}, expected keys among {sorted(keys)}")
    for key, allowed in (("kind", KINDS), ("dtype", get_args(ColumnDtype))):
        if key in entry and entry[key] not in allowed:
            raise SourceError(f"{where}.{key}: got {entry[key]!r}, expected one of {allowed}")
    for key, most in (("buckets", _MAX_BUCKETS), ("min_count", _MAX_COUNT)):
        value = entry.get(key, 1)
        if type(value) is not int or not 1 <= value <= most:
            raise SourceError(f"{where}.{key}: got {value!r}, expected 1..{most}")
    wish = Wish(**entry)
    if wish.kind not in {None, "categorical"} and (wish.buckets or wish.min_count):
        raise SourceError(f"{where}: buckets and min_count are of kind categorical alone")
    if wish.buckets and wish.min_count:
        raise SourceError(f"{where}: of a hashed column no values are counted; drop min_count")
    return wish


def write_wishes(wishes: Mapping[str, Wish]) -> str:
    """Return the text of a `schema.toml`, which `read_wishes` reads as the same."""
    parts = []
    for name, wish in wishes.items():
        lines = [f"[columns.{_quoted(name)}]"]
        for key in ("kind", "dtype"):
            value = getattr(wish, key)
            if value is not None:
                lines.append(f"{key} = {_quoted(value)}")
        for key in ("buckets", "min_count"):
            value = getattr(wish, key)
            if value is not None:
                lines.append(f"{key} = {value}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts) if parts else "[columns]\n"


def _quoted(text: str) -> str:
    """Return a basic string of TOML, whose escapes below U+007F are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
