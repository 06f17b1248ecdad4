"""Values at serving time become the records that `prep table` stores of them, and batches."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import SelectionError
from loaders.format.out_of_range import OUT_OF_RANGE, OutOfRange
from loaders.format.ragged import filled_up, length_codes
from loaders.format.table_schema import ColumnSpec
from loaders.table_coding import (
    DATETIME_PARTS,
    UNKNOWN,
    EncodedRows,
    encode_column,
    encode_lists,
    encode_part,
)
from loaders.table_columns import TARGET, sort_columns
from loaders.table_files import read_table, read_vocabulary
from loaders.table_lists import list_entries, padded_bytes
from loaders.table_numbers import Numeric
from loaders.table_texts import text_entries
from loaders.table_values import Values
from loaders.table_views import table_entries
from loaders.token_store import LENGTH, TOKENS

_FIRST: Final = 2
"""Code of the first value of a vocabulary."""

_NULL_VALUES: Final = "null_values"
"""Key of the recipe: what fields of CSV stood for no value, where they were not quoted."""

_TEXT: Final = "text"
"""Key of the recipe: the columns whose tokens are stored beside the records."""

_TOKENIZER: Final = "tokenizer"
"""Folder of a dataset with the tokenizer of these texts."""

_TRUTH: Final = {"false": ("False", "FALSE"), "true": ("True", "TRUE")}


class Frame(Protocol):
    """What pandas and polars have in common."""

    @property
    def columns(self) -> Iterable[str]:
        """Names of the columns."""
        ...

    def __getitem__(self, name: str, /) -> Any:
        """Return a column."""
        ...


class TableEncoder:
    """Encodes values as the training data was encoded, for serving.

    Values are Python's or NumPy's, or text as it stands in a CSV file; missing are None, NaN, NaT,
    pandas.NA, "", and the words that stood for missing values in the training data ("NA", "null"),
    unless they are in the vocabulary. Times are datetime64, ISO 8601 text or Python's datetime;
    without a zone they are UTC. A value that a vocabulary does not have becomes 1, unknown.

    Args:
        path: The folder of the training data.
        numeric: As in `open_table`, for `batch`.
        out_of_range: What becomes of numbers and times of features that have no code: "refuse"
            them by column and row, "clip" them to the nearest that has one, or make them "missing".

    Raises:
        IncompleteError: There is no finished dataset in the folder.
        SelectionError: The dataset is none of a table.
        FormatError: It is damaged.

    Attributes:
        schema: The columns.
        text_names: Columns of texts, whose tokens lie beside the records: `encode` passes them
            over, and `batch` refuses them, since it could not give their tokens.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        numeric: Numeric = "values",
        out_of_range: OutOfRange = "refuse",
    ) -> None:
        if out_of_range not in OUT_OF_RANGE:
            raise SelectionError(f"out_of_range={out_of_range!r}: expected {OUT_OF_RANGE}")
        self._out_of_range: OutOfRange = out_of_range
        root = Path(path).absolute()
        manifest, self.schema = read_table(root)
        columns = sort_columns(self.schema, str(root))
        self._entries = table_entries(self.schema, columns, numeric)
        self._lists = list_entries(self.schema)
        features = [spec for spec in self.schema.columns if spec.role == "feature"]
        self._known = [spec for spec in features if spec.vocabulary is not None]
        self._target = None if columns.target is None else columns.target.name
        self._codes = {
            spec.name: {
                text: code
                for code, text in enumerate(
                    read_vocabulary(root, manifest, spec),
                    start=0 if spec.role == "target" else _FIRST,
                )
            }
            for spec in self.schema.columns
            if spec.vocabulary is not None
        }
        if self._target in self._codes and set(self._codes[self._target]) <= _TRUTH.keys():
            # Truth values are one class each, however they are written.
            classes = self._codes[self._target]
            more = {way: code for text, code in classes.items() for way in _TRUTH[text]}
            self._codes[self._target] = {**classes, **more}
        self.text_names = tuple(manifest.recipe.get(_TEXT, ()))
        self._root = root
        words = manifest.recipe.get(_NULL_VALUES, ())
        self._null_values = frozenset(word for word in words if isinstance(word, str))

    def encode(self, data: Mapping[str, Any] | Frame) -> NDArray[Any]:
        """Encode samples.

        Args:
            data: Column -> [n] values, a list or an array; or a DataFrame of pandas or polars.
                A column `a.b` may also stand in dicts of a column `a`.
                Columns that the schema does not have are passed over. The target may be left out;
                it is then 0 in the records. Parts of times (`when.year`) are made of the times
                (`when`) where they are not given.

        Returns:
            [n] of the schema's record dtype, byte for byte what `prep table` would store. Of ragged
            lists that is how many values each has; see `lists`.

        Raises:
            SelectionError: A column is not there, or a value is not of its kind or outside what is
                stored; it names column, row (from 0) and value.
        """
        return self._encoded(_columns(data)).records

    def lists(
        self, data: Mapping[str, Any] | Frame
    ) -> dict[str, tuple[NDArray[Any], NDArray[np.uint64]]]:
        """Encode the ragged lists of samples, which lie beside the records.

        Args:
            data: As for `encode`.

        Returns:
            Column -> the values of all lists, one after the other, and [n + 1] where each begins
            and the last ends: byte for byte what `prep table` would store.

        Raises:
            SelectionError: As for `encode`.
        """
        return {
            name: (found.values, np.concatenate([[0], np.cumsum(found.counts)]).astype(np.uint64))
            for name, found in self._encoded(_columns(data)).lists.items()
        }

    def outside(self, data: Mapping[str, Any] | Frame) -> dict[str, int]:
        """Count the numbers of samples that have no code, and what `out_of_range` says became.

        Args:
            data: As for `encode`.

        Returns:
            Column -> how many, of columns that have some.

        Raises:
            SelectionError: As for `encode`.
        """
        outside = self._encoded(_columns(data)).outside
        return {name: count for name, count in outside.items() if count}

    def _encoded(self, given: Mapping[str, Any]) -> EncodedRows:
        found = {spec.name: self._values(spec, given) for spec in self.schema.columns}
        counts = {name: len(values) for name, values in found.items() if values is not None}
        if len(set(counts.values())) > 1:
            raise SelectionError(f"columns of different lengths: {counts}")
        records = np.zeros(next(iter(counts.values()), 0), self.schema.record_dtype)
        made = EncodedRows(records, {}, {})
        for spec in self.schema.columns:
            values = found[spec.name]
            if values is not None:
                self._encode_column(spec, values, made)
        return made

    def _encode_column(self, spec: ColumnSpec, values: Values, made: EncodedRows) -> None:
        """Put what is stored of a column in its place."""
        codes, how = self._codes.get(spec.name), self._out_of_range
        if spec.layout == "fixed":
            encoded = encode_column(spec, values, codes, how)
            stored, made.outside[spec.name] = encoded.codes, encoded.outside
        else:
            lists = encode_lists(spec, values, codes, how)
            made.outside[spec.name] = lists.outside
            name = self.schema.length_names[spec.name]
            made.records[name] = length_codes(lists.counts, lists.missing)
            if spec.layout == "ragged":
                made.lists[spec.name] = lists
                return
            stored = filled_up(lists.values, lists.counts, spec.length)
        made.records[spec.name] = stored.reshape(made.records[spec.name].shape)

    def batch(self, data: Mapping[str, Any] | Frame) -> dict[str, Tensor]:
        """Encode samples into a batch.

        Args:
            data: As for `encode`.

        Returns:
            What a batch of a `Loader` holds, see `TableDataset`; without "target" if `data` has
            none.

        Raises:
            SelectionError: As for `encode`; or there is a column of texts.
        """
        given = _columns(data)
        for name, shown_as in zip(self.text_names, text_entries(self.text_names), strict=True):
            if name in given:
                raise SelectionError(
                    f"column {name!r}: no tokens are made of texts here; leave it out, and encode "
                    f"it with the tokenizer in {self._root / _TOKENIZER}, as by "
                    "transformers.AutoTokenizer.from_pretrained: batches have the ids of each "
                    f"text, and the end-of-text token behind them, in {shown_as[TOKENS]!r}, padded "
                    f"to the longest, and their number in {shown_as[LENGTH]!r}"
                )
        made = self._encoded(given)
        records = made.records
        rows = torch.from_numpy(records.view(np.uint8).reshape(len(records), records.itemsize))
        left_out = self._target is not None and self._target not in given
        entries = [e for e in self._entries if not (left_out and e.name == TARGET)]
        shown = {entry.name: entry.show(rows) for entry in entries}
        for entry in self._lists:
            lists = made.lists[entry.spec.name]
            padded = padded_bytes(lists.values, lists.counts)
            shown[entry.spec.name] = entry.show(padded, shown[entry.length_name])
        return shown

    def unknown(
        self, records: NDArray[Any], lists: Mapping[str, tuple[NDArray[Any], Any]] | None = None
    ) -> dict[str, int]:
        """Count the values of records that no vocabulary has.

        Args:
            records: [n], from `encode`.
            lists: From `lists`; without, ragged lists are left out.

        Returns:
            Column -> how many, for each feature with a vocabulary.
        """
        codes = {spec.name: records[spec.name] for spec in self._known if spec.layout != "ragged"}
        beside = {} if lists is None else lists
        codes |= {s.name: beside[s.name][0] for s in self._known if s.name in beside}
        names = [spec.name for spec in self._known if spec.name in codes]
        return {name: int(np.count_nonzero(codes[name] == UNKNOWN)) for name in names}

    def _values(self, spec: ColumnSpec, given: Mapping[str, Any]) -> Values | None:
        if spec.name in given:
            return self._without_words(spec, _sequence(spec.name, given[spec.name]))
        stem, _, part = spec.name.rpartition(".")
        if stem in given and part in DATETIME_PARTS:
            times = next((s for s in self.schema.columns if s.name == stem), spec)
            if times.kind in {"date", "datetime"}:
                values = self._without_words(times, _sequence(stem, given[stem]))
                return encode_part(times, values, part)
        if (members := _members(spec.name, given)) is not None:
            return self._without_words(spec, members)
        if spec.role == "target":
            return None
        raise SelectionError(f"column {spec.name!r} is missing; given are {sorted(given)}")

    def _without_words(self, spec: ColumnSpec, values: Values) -> Values:
        """Put None where a word stands for a missing value, as it did in the training data.

        What is quoted in a file is no such word, and so is what a vocabulary has.
        """
        known = self._codes.get(spec.name, {})
        words = {word for word in self._null_values if word not in known}
        if isinstance(values, np.ndarray) or not words or spec.kind == "vector":
            return values
        return [None if isinstance(v, str) and v in words else v for v in values]


def _members(name: str, given: Mapping[str, Any]) -> Values | None:
    """Return what stands under a name such as `a.b` in a column `a` of dicts; None without one."""
    for stem in (name[:place] for place, mark in enumerate(name) if mark == "."):
        if stem in given:
            values = _sequence(stem, given[stem])
            if all(value is None or isinstance(value, Mapping) for value in values):
                inner = name[len(stem) + 1 :]
                return [None if value is None else _member(inner, value) for value in values]
    return None


def _member(name: str, value: Mapping[str, Any]) -> Any:
    if name in value:
        return value[name]
    found = _members(name, {key: [inner] for key, inner in value.items()})
    return None if found is None else found[0]


def _columns(data: Mapping[str, Any] | Frame) -> Mapping[str, Any]:
    if isinstance(data, Mapping):
        return data
    if not hasattr(data, "columns"):
        raise SelectionError(
            f"data is a {type(data).__name__}, expected a dict of columns or a DataFrame"
        )
    return {name: data[name] for name in data.columns}


def _sequence(name: str, column: Any) -> Values:
    """Return a column as a list of Python's objects, or an array that holds the same."""
    if isinstance(column, Tensor):
        column = column.numpy(force=True)
    if isinstance(column, str | bytes | Mapping) or not hasattr(column, "__len__"):
        raise SelectionError(
            f"column {name!r} is a {type(column).__name__}, expected a list or an array with a "
            "value for each sample"
        )
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biufM":
        return np.asarray(column)
    # Columns of pandas and polars with other types hold what NumPy has no type for.
    exact = getattr(column, "to_list", None) or getattr(column, "tolist", None)
    found: list[Any] = list(column) if exact is None else exact()
    return found
