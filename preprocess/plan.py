"""What a run will do, before it does anything: options and the layout of the shards."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Final

from loaders.format.containers import CONTAINERS
from loaders.format.files import to_json
from loaders.format.spec import Container, Manifest, needed_version
from preprocess.contents import Contents
from preprocess.errors import SampleError
from preprocess.item_record import RecordedItem, RecordedRun, record_item
from preprocess.items import Item, Listing
from preprocess.recipe import Recipe, cut_items
from preprocess.skipped import Listed
from preprocess.spelling import Option, OptionError
from preprocess.task import ShardTask

SHARD_NBYTES: Final = 256_000_000
"""Default bytes of samples in a shard: seconds of work, and few enough files for any disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run, whatever is prepared; only `container` and `shard_nbytes` change bytes.

    Attributes:
        container: "tensor" (.npy files) or "zarr" (zarr v3 groups).
        shard_nbytes: Bytes of samples to a shard; a shard holds at least one sample.
        workers: Samples prepared at a time; None for one per usable core.
        backend: joblib backend, such as "threading" or "loky"; "auto" lets the recipe choose.
        max_skipped: Items that may be skipped before a run counts as not clean.
        overwrite: Remove what an earlier run wrote to the output folder.
        append: Add items that are new in the source to the dataset in the output folder.
        item_timeout: Seconds after which an item is left out by name, on processes; None for any
            time.
    """

    container: Container = "tensor"
    shard_nbytes: int = SHARD_NBYTES
    workers: int | None = None
    backend: str = "auto"
    max_skipped: int = 0
    overwrite: bool = False
    append: bool = False
    item_timeout: float | None = None

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        if self.container not in CONTAINERS:
            raise OptionError(
                Option("container", self.container), f": expected one of {sorted(CONTAINERS)}"
            )
        if self.shard_nbytes < 1:
            raise OptionError(Option("shard_nbytes", self.shard_nbytes), ": expected at least 1")
        if self.workers is not None and self.workers < 1:
            raise OptionError(Option("workers", self.workers), ": expected at least 1")
        if self.item_timeout is not None and not self.item_timeout > 0:
            raise OptionError(Option("item_timeout", self.item_timeout), ": expected more than 0")
        if self.item_timeout is not None and self.backend == "threading":
            raise OptionError(
                *(Option("item_timeout"), ": a thread cannot be ended; leave out "),
                Option("backend", self.backend),
            )
        if self.append and self.overwrite:
            raise OptionError(Option("append"), " and ", Option("overwrite"), ": give one of them")
        if self.max_skipped < 0:
            raise OptionError(Option("max_skipped", self.max_skipped), ": expected at least 0")

    def worker_count(self) -> int:
        """Return the workers to use: the cores that this process may use, unless named."""
        from joblib import cpu_count

        return self.workers or int(cpu_count())


@dataclass(frozen=True, slots=True)
class Before:
    """A dataset that a run appends to.

    Attributes:
        manifest: Its manifest.
        runs: What it was made from.
    """

    manifest: Manifest
    runs: tuple[RecordedRun, ...]

    def shard_count(self, split: str) -> int:
        """Return how many shards of a split it has."""
        spec = self.manifest.splits.get(split)
        return 0 if spec is None else len(spec.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a run will do.

    Attributes:
        listing: The input, also that of the runs before it.
        out: The output folder.
        recipes: Split name -> its recipe.
        shards: Split name -> the items of each shard, first of those that are there before it.
        capacities: Split name -> items to a shard; None where an item is not one sample.
        container: How the bytes are laid out.
        recipe_hash: SHA-256 over all that changes bytes, apart from the input.
        run_hash: SHA-256 over that and the input, change times included.
        extras: Files to be written beside the shards: path below the dataset -> bytes.
        aside: What a repair needs beside the manifest to plan the same again, as JSON values.
        before: The dataset that this run appends to; its shards are not written.
        contents: Split name -> what each new item held, where it was read before this run.
        closed: Why nothing can be appended to what is made so; "" where that can be.
        outlined_kind: The kind that the recipes will have, while there are none yet.
        outlined: The options that they will record.
        outlined_facts: Names of what they will record beside these.
    """

    listing: Listing
    out: Path
    recipes: Mapping[str, Recipe]
    shards: Mapping[str, Sequence[tuple[Item, ...]]]
    capacities: Mapping[str, int | None]
    container: Container
    recipe_hash: str
    run_hash: str
    extras: Mapping[str, bytes] = field(default_factory=dict)
    aside: Mapping[str, Any] = field(default_factory=dict)
    before: Before | None = None
    contents: Mapping[str, Contents] = field(default_factory=dict)
    closed: str = ""
    outlined_kind: str = ""
    outlined: Mapping[str, Any] = field(default_factory=dict)
    outlined_facts: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """Name of the modality."""
        return self.recipe.kind if self.recipes else self.outlined_kind

    @property
    def options(self) -> Mapping[str, Any]:
        """What changes bytes, as JSON values: what the recipes record, or will."""
        return self.recipe.options() if self.recipes else self.outlined

    @property
    def fact_names(self) -> frozenset[str]:
        """Names of what is recorded beside these, and is no option."""
        return frozenset(self.recipe.facts()) if self.recipes else self.outlined_facts

    @property
    def recipe(self) -> Recipe:
        """The recipe of the first split: the others differ in their fields alone."""
        return next(iter(self.recipes.values()))

    def new_shards(self) -> dict[str, Sequence[tuple[Item, ...]]]:
        """Return the items of each shard that this run writes, by split."""
        if self.before is None:
            return dict(self.shards)
        firsts = {split: self.before.shard_count(split) for split in self.shards}
        return {split: shards[firsts[split] :] for split, shards in self.shards.items()}

    def too_large(self) -> list[SampleError]:
        """Return the items that this run leaves out by their sizes; once each, if splits share."""
        return list(
            {
                (error.key, error.reason): error
                for task in self.tasks()
                for item in task.items
                if (error := task.recipe.too_large(item)) is not None
            }.values()
        )

    def places(self, split: str) -> int:
        """Return the places for items in a split: all shards but the last have all of theirs."""
        shards, capacity = self.shards[split], self.capacities[split]
        if capacity is None or not shards:
            return len(self.listing.splits[split])
        return capacity * (len(shards) - 1) + len(shards[-1])

    def tasks(self) -> Iterator[ShardTask]:
        """Yield one task per shard that is to be written, in order."""
        for split, shards in self.new_shards().items():
            for index, items in enumerate(shards, len(self.shards[split]) - len(shards)):
                yield ShardTask(
                    source=self.listing.root,
                    out=self.out,
                    container=self.container,
                    split=split,
                    index=index,
                    capacity=self.capacities[split],
                    items=items,
                    recipe=self.recipes[split],
                    class_count=len(self.listing.classes),
                    run_hash=self.run_hash,
                )

    def runs(self) -> tuple[RecordedRun, ...]:
        """Return what the dataset will have been made from, this run last."""
        before = () if self.before is None else self.before.runs
        fresh = {}
        for split, items in self.listing.splits.items():
            done = sum(run.counts.get(split, 0) for run in before)
            if len(items) > done or not before:
                contents = self.contents.get(split, ())
                fresh[split] = Listed(len(items) - done, partial(_recorded, items, done, contents))
        return (*before, RecordedRun(len(self.listing.skipped), fresh))

    @property
    def nbytes(self) -> int:
        """Bytes of the shards to be written if no item is skipped but for its size."""
        return sum(task.nbytes for task in self.tasks())

    @property
    def nbytes_beside(self) -> int:
        """Bytes of what is written beside the shards, such as a tokenizer."""
        return sum(map(len, self.extras.values()))

    def nbytes_left(self) -> int:
        """Return the bytes of the shards that have no receipt yet, and of what lies beside."""
        left = sum(task.nbytes for task in self.tasks() if not task.receipt_path.exists())
        return left + self.nbytes_beside


def plan_run(
    listing: Listing,
    out: Path,
    recipes: Mapping[str, Recipe],
    options: RunOptions,
    counts: Sequence[Mapping[str, int]] | None = None,
) -> Plan:
    """Lay out the shards; what they will hold depends on the input and the options alone.

    Args:
        listing: The input.
        out: The output folder.
        recipes: Split name -> its recipe.
        options: How to run.
        counts: How many items of each split each of several runs takes, in the order of the
            listing; no shard has items of two. By default one takes all.
    """
    runs = counts or [{split: len(items) for split, items in listing.splits.items()}]
    cut = {
        split: _cut(items, recipes[split], options, [run.get(split, 0) for run in runs])
        for split, items in listing.splits.items()
    }
    recipe_hash = hash_recipes(recipes, options)
    times = [t for items in listing.splits.values() for item in items for t in item.times()]
    described = [recipe_hash, listing.fingerprint(), times]
    whole = to_json([*described, [dict(run) for run in runs]] if counts else described)
    return Plan(
        listing=listing,
        out=out,
        recipes=recipes,
        shards={split: shards for split, (shards, _) in cut.items()},
        capacities={split: capacity for split, (_, capacity) in cut.items()},
        container=options.container,
        recipe_hash=recipe_hash,
        run_hash=hashlib.sha256(whole).hexdigest(),
        aside={"shard_nbytes": options.shard_nbytes},
    )


def hash_recipes(recipes: Mapping[str, Recipe], options: RunOptions) -> str:
    """Return SHA-256 over all that changes bytes, apart from the input."""
    described = {
        "format_version": needed_version(f for r in recipes.values() for f in r.fields()),
        "container": options.container,
        "shard_nbytes": options.shard_nbytes,
        "recipes": {name: [r.kind, r.options()] for name, r in recipes.items()},
        "fields": {name: [f.to_json() for f in r.fields()] for name, r in recipes.items()},
    }
    return hashlib.sha256(to_json(described)).hexdigest()


def _cut(
    items: tuple[Item, ...], recipe: Recipe, options: RunOptions, counts: Sequence[int]
) -> tuple[list[tuple[Item, ...]], int | None]:
    """Return the shards of a split, and the items to a shard where each is one sample.

    A zarr array has chunks of one size: that of the first run that has items of the split.
    """
    shards: list[tuple[Item, ...]] = []
    capacity: int | None = None
    first = 0
    for count in counts:
        most = capacity if options.container == "zarr" else None
        found = cut_items(items[first : first + count], recipe, options.shard_nbytes, most)
        first += count
        shards += found
        if found and recipe.one_to_one:
            capacity = max(capacity or 0, len(found[0]))
    return shards, (capacity or 1) if recipe.one_to_one else None


def _recorded(items: Sequence[Item], first: int, contents: Contents) -> Iterator[RecordedItem]:
    return map(record_item, islice(items, first, None), chain(contents, repeat(())))
