"""What goes into one shard: its open files, and what is counted on the way there."""

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from loaders.format.containers import CONTAINERS
from loaders.format.fields import OFFSETS_DTYPE
from loaders.format.files import WORK
from loaders.format.row_writer import RowWriter
from loaders.format.statistics import ChannelStatistics
from preprocess.errors import SampleError
from preprocess.recipe import Ragged, Rows
from preprocess.shard_samples import Prepared
from preprocess.stats import ChannelTally, merge_tallies, no_statistics
from preprocess.task import ShardTask


class ShardContent:
    """What goes into one shard: its open files, and what is counted on the way there.

    Args:
        task: The shard.
        stack: Closed at the end: removes files that did not get their names.
    """

    def __init__(self, task: ShardTask, stack: ExitStack) -> None:
        self._fields = task.recipe.fields()
        self.count = 0
        self.skipped: list[tuple[str, str]] = []
        self.sums = {
            field.name: no_statistics(field.shape[-1], int(np.iinfo(field.dtype).max))
            for field in self._fields
            if field.role == "image"
        }
        self.labels: dict[int, int] = {}
        self.ends = {field.name: 0 for field in self._fields if field.has_offsets}
        self.sizes: dict[str, list[int]] = {f.name: [] for f in self._fields if f.in_chunks}
        self.tallies: dict[str, tuple[int, ...]] = {}
        self.writers: dict[str, RowWriter] = {}
        self._mark: Mark | None = None
        container = CONTAINERS[task.container]
        tag = f"tmp-{os.getpid()}-{threading.get_ident()}-{task.split}-{task.index:05d}"
        planned = 0 if task.capacity is None else len(task.items)
        for column in task.columns():
            full = container.prefix(column, planned)
            room = container.shard_nbytes(column, planned, task.capacity) if planned else 0
            writer = RowWriter(task.out / WORK / f"{tag}.{column.name}", full, room)
            self.writers[column.name] = writer
            stack.callback(writer.discard)
            if column.role == "offsets":
                writer.append(np.zeros(1, column.numpy_dtype))

    def store(self, part: Sequence[Prepared]) -> None:
        """Add the next samples, or the reasons why they are not there."""
        for rows, statistics in part:
            if isinstance(rows, SampleError):
                if self._mark is not None:
                    self._go_back(self._mark)
                self.skipped.append((rows.key, rows.reason))
                continue
            if rows.more and self._mark is None:
                self._mark = self._here()
            self._add(rows)
            for name, found in statistics.items():
                self.sums[name] += found
            if not rows.more:
                self._mark = None

    def _add(self, rows: Rows) -> None:
        self.count += rows.count
        self.skipped += [(error.key, error.reason) for error in rows.skipped]
        merge_tallies(self.tallies, rows.tallies)
        for field in self._fields:
            array = rows.arrays[field.name]
            if field.in_chunks and isinstance(array, Ragged):
                self.sizes[field.name] += array.counts.tolist()
                array = array.values
            elif isinstance(array, Ragged):
                ends = self.ends[field.name] + np.cumsum(array.counts, dtype=np.int64)
                self.writers[f"{field.name}_offsets"].append(ends.astype(OFFSETS_DTYPE))
                self.ends[field.name] += len(array.values)
                array = array.values
            if field.role == "image" and field.encoding is None:
                # While they are in the cache on their way to the file.
                channels, dtype = field.shape[-1], field.numpy_dtype
                tally = ChannelTally(channels, dtype)
                self.writers[field.name].append(array, tally.add, channels * dtype.itemsize)
                self.sums[field.name] += tally.statistics
            else:
                self.writers[field.name].append(array)
            if field.role == "label":
                for label in array.tolist():
                    self.labels[label] = self.labels.get(label, 0) + 1

    def _here(self) -> "Mark":
        return Mark(
            writers={name: writer.mark() for name, writer in self.writers.items()},
            count=self.count,
            skipped=len(self.skipped),
            sums=dict(self.sums),
            labels=dict(self.labels),
            ends=dict(self.ends),
            sizes={name: len(sizes) for name, sizes in self.sizes.items()},
            tallies=dict(self.tallies),
        )

    def _go_back(self, mark: "Mark") -> None:
        for name, writer in self.writers.items():
            writer.go_back(mark.writers[name])
        self.count = mark.count
        del self.skipped[mark.skipped :]
        self.sums, self.labels = mark.sums, mark.labels
        self.ends, self.tallies = mark.ends, mark.tallies
        for name, count in mark.sizes.items():
            del self.sizes[name][count:]
        self._mark = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Where the content stood before an item that comes in several parts."""

    writers: dict[str, tuple[int, int, int, bytes]]
    count: int
    skipped: int
    sums: dict[str, ChannelStatistics]
    labels: dict[int, int]
    ends: dict[str, int]
    sizes: dict[str, int]
    tallies: dict[str, tuple[int, ...]]
