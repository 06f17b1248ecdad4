"""A recipe whose samples are records: their bytes follow from those of the items alone."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from loaders.format.fields import FieldSpec
from loaders.format.records import RecordPart
from loaders.format.table_schema import (
    TABLE_SCHEMA,
    ColumnSpec,
    ColumnStatistics,
    Loss,
    TableSchema,
)
from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item, Listing
from preprocess.plan import Plan, RunOptions, plan_run
from preprocess.recipe import Maker, Rows
from preprocess.run import run
from tests.recipes import BAD, list_items, write_items

SCHEMA = TableSchema(
    (
        ColumnSpec(
            name="age",
            kind="integer",
            role="feature",
            dtype="uint8",
            offset=18,
            statistics=ColumnStatistics(
                count=9,
                missing=1,
                mean=38.5,
                std=4.25,
                minimum=18,
                maximum=90,
                quantiles=(18, 18, 19, 30, 38, 44, 70, 88.5, 90),
            ),
        ),
        ColumnSpec(
            name="größe in m",
            kind="float",
            role="feature",
            dtype="float32",
            losses=(Loss(what="rounded to float32", values=2, worst=0.001),),
        ),
        ColumnSpec(
            name="城市",
            kind="categorical",
            role="feature",
            dtype="uint16",
            vocabulary="table/vocabulary/0002.json",
            values=300,
        ),
        ColumnSpec(name="embedding", kind="vector", role="feature", dtype="float32", length=3),
        ColumnSpec(name="seen", kind="datetime", role="feature", dtype="int64", offset=-5),
        ColumnSpec(
            name="y",
            kind="categorical",
            role="target",
            dtype="uint8",
            vocabulary="table/vocabulary/0005.json",
            values=2,
        ),
    )
)


@dataclass(frozen=True, kw_only=True)
class RecordRecipe:
    """Makes records of each item out of SHAKE-128 of its bytes.

    Attributes:
        record: What a record holds.
        rows: Records that an item becomes; None for one each, planned beforehand.
        wrong: Give rows of another dtype.
    """

    record: tuple[RecordPart, ...] = SCHEMA.record
    rows: int | None = None
    wrong: bool = False

    @property
    def kind(self) -> str:
        return "table"

    def options(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def backend(self, listing: Listing, workers: int) -> str:
        return "threading"

    def facts(self) -> dict[str, Any]:
        return {}

    @property
    def one_to_one(self) -> bool:
        return self.rows is None

    def expected_nbytes(self, item: Item) -> int:
        return self.fields()[0].nbytes * (self.rows or 1)

    def predicted_nbytes(self, item: Item) -> float:
        """Return the same: all samples are its own."""
        return self.expected_nbytes(item)

    def too_large(self, item: Item) -> SampleError | None:
        return None

    def refusal(self, tallies: Mapping[str, tuple[int, ...]]) -> str | None:
        return None

    def notes(self, tallies: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
        return ()

    def opened(self) -> AbstractContextManager[Maker]:
        return nullcontext(self)

    def fields(self) -> tuple[FieldSpec, ...]:
        return (
            FieldSpec(name="record", dtype="record", shape=(), role="record", record=self.record),
        )

    def samples(self, files: ItemFiles, items: Sequence[Item]) -> Iterator[Rows | SampleError]:
        for item in items:
            data = files.read(item)
            if data.startswith(BAD):
                yield SampleError(item.key, "it is bad")
                continue
            records = self.records(data)
            if self.wrong:
                records = records.view("V1").reshape(len(records), -1)
            yield Rows(count=len(records), arrays={"record": records})

    def records(self, data: bytes) -> Any:
        """Return what an item of these bytes becomes."""
        field = self.fields()[0]
        count = 1 if self.rows is None else self.rows
        return np.frombuffer(
            hashlib.shake_128(data).digest(count * field.nbytes), field.numpy_dtype
        )


def prepare_records(
    folder: Path,
    contents: dict[str, bytes],
    options: RunOptions,
    recipe: RecordRecipe,
    schema: TableSchema | None = None,
) -> Path:
    """Write items below `folder`, prepare them with the recipe, and return the dataset's folder."""
    write_items(folder / "source", contents)
    out = folder / "out"
    run(plan_records(folder / "source", out, options, recipe, schema), options)
    return out


def plan_records(
    source: Path,
    out: Path,
    options: RunOptions,
    recipe: RecordRecipe,
    schema: TableSchema | None = None,
) -> Plan:
    """Plan a run of the recipe over everything in `source`."""
    listing = list_items(source, classes=0)
    plan = plan_run(listing, out, dict.fromkeys(listing.splits, recipe), options)
    if schema is None:
        return plan
    vocabularies = {spec.vocabulary: b"{}\n" for spec in schema.columns if spec.vocabulary}
    return replace(plan, extras={TABLE_SCHEMA: schema.to_bytes(), **vocabularies})
