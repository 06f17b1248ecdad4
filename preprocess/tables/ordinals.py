"""Types of pandas whose storage alone means nothing: refused by name, with what to do instead."""

from typing import TYPE_CHECKING, Final

from preprocess.errors import SourceError
from preprocess.tables.options import TableOptions
from preprocess.tables.plan import with_name

if TYPE_CHECKING:
    import pyarrow as pa

_REFUSED: Final = {
    "pandas.period": (
        "periods of pandas, of which Arrow keeps bare ordinal numbers; convert it by "
        ".dt.to_timestamp()"
    ),
    "pandas.interval": "intervals of pandas, which are no numbers; give its two ends as columns",
}
"""Name of an extension type -> what is said."""


def refuse_ordinals(schema: "pa.Schema", options: TableOptions, key: str) -> None:
    """Refuse columns of pandas that would be stored as something else.

    Args:
        schema: Of a file or a frame.
        options: Which columns are not read.
        key: Names the file or the frame.

    Raises:
        SourceError: There is one that is read.
    """
    for field in schema:
        # Where pandas is not loaded, the type is that of the storage, and the field has its name.
        marked = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode(errors="replace")
        said = _REFUSED.get(getattr(field.type, "extension_name", marked))
        if said is not None and field.name not in options.unread:
            remedy = with_name("--ignore", field.name)
            raise SourceError(f"{key}: column {field.name!r}: holds {said}, or {remedy}")
