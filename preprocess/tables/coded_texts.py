"""Which columns of a schema are codes of texts, what they are made of, and the texts themselves."""

from typing import TYPE_CHECKING

from loaders.format.table_schema import ColumnSpec, TableSchema
from preprocess.tables.list_values import list_items
from preprocess.tables.text_codes import is_coded_text
from preprocess.tables.values import DATETIME_PARTS, column_array, texts_of

if TYPE_CHECKING:
    import pyarrow as pa


def source_of(spec: ColumnSpec, schema: TableSchema) -> tuple[str, str | None]:
    """Return the column of the input that a column is made of, and the part of its times."""
    stem, _, part = spec.name.rpartition(".")
    if part in DATETIME_PARTS:
        for other in schema.columns:
            if other.name == stem and other.kind in {"date", "datetime"}:
                return stem, part
    return spec.name, None


def is_coded(spec: ColumnSpec) -> bool:
    """Return whether the values of a column are texts that have codes."""
    return spec.vocabulary is not None or spec.buckets is not None


def different_texts_in(table: "pa.Table", spec: ColumnSpec) -> "pa.LargeStringArray":
    """Return the different texts of a column with codes; of lists, of the texts in them.

    They are found without looking at any row, where it can be.
    """
    array = coded_array(table, spec)
    return array.dictionary if is_coded_text(array) else texts_of(array).values


def coded_array(table: "pa.Table", spec: ColumnSpec) -> "pa.Array":
    """Return a column with codes; of lists what they hold, one after the other."""
    array = column_array(table, spec.name)
    return list_items(array) if spec.kind == "vector" else array
