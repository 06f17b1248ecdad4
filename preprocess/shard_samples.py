"""The samples of a few items, checked against what the recipe has promised."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from loaders.errors import ShardsError
from loaders.format.codecs import decode_sample, picture_shape
from loaders.format.encoding import Encoding
from loaders.format.fields import FieldSpec
from loaders.format.statistics import ChannelStatistics
from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.recipe import Maker, Ragged, Redo, Rows
from preprocess.stats import channel_statistics, no_statistics
from preprocess.task import ShardTask

Prepared = tuple[Rows | SampleError, dict[str, ChannelStatistics]]
"""Samples or an error, and the sums of pictures that are stored encoded: others are summed where
their bytes are written, see `ShardContent`."""


def prepare(
    task: ShardTask, maker: Maker, files: ItemFiles, items: Sequence[Item]
) -> Iterator[Prepared]:
    """Make samples of a few items, and check them against the fields."""
    for refused, group in groupby(items, lambda item: item in task.refused):
        if refused:
            yield from ((SampleError(item.key, task.refused[item]), {}) for item in group)
        else:
            yield from _prepare(task, maker, files, tuple(group))


def _prepare(
    task: ShardTask, maker: Maker, files: ItemFiles, items: Sequence[Item]
) -> Iterator[Prepared]:
    fields = task.recipe.fields()
    made = maker.samples(files, items)
    done = 0
    more = False
    while (rows := _take(task, items[min(done, len(items) - 1)], made)) is not None:
        statistics = {}
        if isinstance(rows, Rows):
            _check(task, items[min(done, len(items) - 1)], fields, rows)
            for field in fields:
                array = rows.arrays[field.name]
                if field.role == "image" and field.encoding and isinstance(array, Ragged):
                    statistics[field.name] = _decoded_statistics(field, field.encoding, array)
        if task.recipe.one_to_one:
            done += rows.count if isinstance(rows, Rows) else 1
            if done > len(items):
                raise _broken(task, items[-1], f"more results than the {len(items)} items")
        more = isinstance(rows, Rows) and rows.more
        yield rows, statistics
    if more:
        raise _broken(task, items[-1], "more rows of an item were promised")
    if task.recipe.one_to_one and done < len(items):
        raise _broken(task, items[done], f"{done} results for {len(items)} items")


def _decoded_statistics(field: FieldSpec, encoding: Encoding, encoded: Ragged) -> ChannelStatistics:
    """Sum pictures that are stored encoded as a loader will show them: decoded again."""
    found = no_statistics(field.shape[-1], int(np.iinfo(field.dtype).max))
    for data in np.split(encoded.values, np.cumsum(encoded.counts)[:-1]):
        shape = picture_shape(data) if field.ragged else field.shape
        pixels = np.empty(shape, field.numpy_dtype)
        decode_sample(encoding, data, pixels)
        found += channel_statistics(pixels)
    return found


def _take(
    task: ShardTask, item: Item, made: Iterator[Rows | SampleError]
) -> Rows | SampleError | None:
    """Return what the recipe makes of an item, None if it makes no more."""
    try:
        return next(made, None)
    except (ShardsError, Redo):
        raise
    except Exception as error:
        raise _broken(task, item, f"{type(error).__name__}: {error}") from error


def _check(task: ShardTask, item: Item, fields: Sequence[FieldSpec], rows: Rows) -> None:
    names = sorted(field.name for field in fields)
    if sorted(rows.arrays) != names:
        raise _broken(task, item, f"fields {sorted(rows.arrays)}, promised were {names}")
    for field in fields:
        array: Any = rows.arrays[field.name]
        count = rows.count
        shape, dtype = field.shape, field.numpy_dtype
        if field.varies:
            count, array = _check_ragged(task, item, field, rows)
        if field.encoding is not None:
            shape, dtype = (), np.dtype(np.uint8)
        if not isinstance(array, np.ndarray):
            raise _broken(task, item, f"field {field.name} is no array: {type(array).__name__}")
        if array.dtype != dtype or array.shape != (count, *shape):
            found = f"field {field.name} is {array.dtype} {array.shape}"
            raise _broken(task, item, f"{found}, promised was {dtype} {(count, *shape)}")
        if field.role == "label" and count and int(array.max()) >= task.class_count:
            label = int(array.max())
            raise _broken(task, item, f"label {label} and only {task.class_count} classes")


def _check_ragged(task: ShardTask, item: Item, field: FieldSpec, rows: Rows) -> tuple[int, Any]:
    """Return how many values there must be, and the values."""
    array = rows.arrays[field.name]
    if not isinstance(array, Ragged):
        raise _broken(task, item, f"field {field.name} is not ragged")
    counts = array.counts
    if counts.shape != (rows.count,) or counts.dtype != np.int64 or (counts < 0).any():
        raise _broken(task, item, f"field {field.name}: no counts of {rows.count} samples")
    return int(counts.sum()), array.values


def _broken(task: ShardTask, item: Item, what: str) -> RuntimeError:
    """Return the error for a recipe that does not keep its promises: a fault of its author."""
    return RuntimeError(f"recipe {task.recipe.kind}: {item.key}: {what}")
