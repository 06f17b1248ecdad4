"""What is asked of single columns: by options, and by a schema file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from preprocess.errors import SourceError
from preprocess.spelling import there_are
from preprocess.tables.options import TableOptions
from preprocess.tables.toml import Wish


def check_names(columns: Sequence[str], options: TableOptions, wishes: Mapping[str, Wish]) -> None:
    """Refuse names of columns that there are not."""
    named = {
        "--target": (options.target,),
        "--group-by": (options.group_by,),
        "--split-by-time": (options.split_by_time,),
        "--categorical": options.categorical,
        "--numeric": options.numeric,
        "--ignore": options.ignore,
        "--text": options.text,
        "--hash-buckets": tuple(name for name, _ in options.hash_buckets),
        "--float32": tuple(name for name in options.float32 if name != "*"),
        "--schema": tuple(wishes),
    }
    known = set(columns)
    for option, names in named.items():
        for name in names:
            if name is not None and name not in known:
                raise SourceError(f"{option} {name!r}: no such column; {there_are(name, columns)}")


def wish_of(name: str, options: TableOptions, wish: Wish) -> Wish:
    """Return what is asked of a column: by options, and where they say nothing by the file."""
    kinds: dict[str, tuple[str, ...]] = {
        "categorical": options.categorical,
        "numeric": options.numeric,
        "ignore": options.ignore,
        "text": options.text,
    }
    buckets = dict(options.hash_buckets).get(name)
    if buckets is not None:
        return Wish(kind="categorical", buckets=buckets)
    for kind, names in kinds.items():
        if name in names:
            same = wish.kind == kind
            asked = wish if same else Wish(min_count=wish.min_count)
            return replace(asked, kind=kind)  # type: ignore[arg-type]
    return wish
