"""Which entry of a batch each column of a table belongs to."""

from dataclasses import dataclass

from loaders.errors import FormatError, SelectionError
from loaders.format.table_column import ENTRIES
from loaders.format.table_schema import ColumnSpec, TableSchema

NUMERIC, CATEGORICAL, TARGET = ENTRIES


@dataclass(frozen=True, slots=True)
class Columns:
    """What each column of a table is shown as.

    Attributes:
        numeric: Columns of "numeric", in its order: that of the record.
        categorical: Columns of "categorical".
        vectors: Columns of lists, which are entries of their own.
        target: The column to predict.
    """

    numeric: tuple[ColumnSpec, ...]
    categorical: tuple[ColumnSpec, ...]
    vectors: tuple[ColumnSpec, ...]
    target: ColumnSpec | None


def sort_columns(schema: TableSchema, where: str) -> Columns:
    """Say what each column is shown as.

    Args:
        schema: Of the table.
        where: Names the dataset in errors.

    Raises:
        FormatError: There are several targets.
        SelectionError: A vector has the name of another entry.
    """
    # What the record holds of ragged lists is how many values they have.
    lengths = schema.length_names
    by_name = {lengths[s.name] if s.layout == "ragged" else s.name: s for s in schema.columns}
    stored = [by_name[name] for name, _, _ in schema.record if name in by_name]
    targets = [spec for spec in stored if spec.role == "target"]
    if len(targets) > 1:
        raise FormatError(f"{where}: several targets: {[spec.name for spec in targets]}")
    features = [spec for spec in stored if spec.role == "feature"]
    vectors = tuple(spec for spec in features if spec.kind == "vector")
    for spec in vectors:
        if spec.name in ENTRIES:
            raise SelectionError(
                f"{where}: a vector column is called {spec.name!r}, as an entry of batches is: "
                "give it another name and prepare the table again"
            )
    return Columns(
        numeric=tuple(s for s in features if s.kind not in {"vector", "categorical"}),
        categorical=tuple(s for s in features if s.kind == "categorical"),
        vectors=vectors,
        target=targets[0] if targets else None,
    )
