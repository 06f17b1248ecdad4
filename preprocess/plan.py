"""What a run will do, before it does anything: options and the layout of the shards."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from loaders.format.containers import CONTAINERS
from loaders.format.files import to_json
from loaders.format.spec import Container, needed_version
from preprocess.recipe import Recipe, cut_items
from preprocess.sources import Item, Listing
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
        item_timeout: Seconds after which an item is left out by name, on processes; None for any
            time.
    """

    container: Container = "tensor"
    shard_nbytes: int = SHARD_NBYTES
    workers: int | None = None
    backend: str = "auto"
    max_skipped: int = 0
    overwrite: bool = False
    item_timeout: float | None = None

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        if self.container not in CONTAINERS:
            raise ValueError(f"container={self.container!r}: expected one of {sorted(CONTAINERS)}")
        if self.shard_nbytes < 1:
            raise ValueError(f"shard_nbytes={self.shard_nbytes}: expected at least 1")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers={self.workers}: expected at least 1")
        if self.item_timeout is not None and not self.item_timeout > 0:
            raise ValueError(f"item_timeout={self.item_timeout}: expected more than 0")
        if self.item_timeout is not None and self.backend == "threading":
            raise ValueError("item_timeout: a thread cannot be ended; leave the backend out")
        if self.max_skipped < 0:
            raise ValueError(f"max_skipped={self.max_skipped}: expected at least 0")

    def worker_count(self) -> int:
        """Return the workers to use: the cores that this process may use, unless named."""
        from joblib import cpu_count

        return self.workers or int(cpu_count())


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a run will do.

    Attributes:
        listing: The input.
        out: The output folder.
        recipes: Split name -> its recipe.
        shards: Split name -> the items of each shard.
        capacities: Split name -> items to a shard; None where an item is not one sample.
        container: How the bytes are laid out.
        recipe_hash: SHA-256 over all that changes bytes, apart from the input.
        run_hash: SHA-256 over that and the input, change times included.
        extras: Files to be written beside the shards: path below the dataset -> bytes.
        aside: What a repair needs beside the manifest to plan the same again, as JSON values.
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

    @property
    def recipe(self) -> Recipe:
        """The recipe of the first split: the others differ in their fields alone."""
        return next(iter(self.recipes.values()))

    def tasks(self) -> Iterator[ShardTask]:
        """Yield one task per shard, in order."""
        for split, shards in self.shards.items():
            for index, items in enumerate(shards):
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

    @property
    def nbytes(self) -> int:
        """Bytes of all shards if no item is skipped."""
        return sum(task.nbytes for task in self.tasks())


def plan_run(
    listing: Listing, out: Path, recipes: Mapping[str, Recipe], options: RunOptions
) -> Plan:
    """Lay out the shards; what they will hold depends on the input and the options alone."""
    shards = {
        split: cut_items(items, recipes[split], options.shard_nbytes)
        for split, items in listing.splits.items()
    }
    capacities = {
        split: (len(parts[0]) if parts else 1) if recipes[split].one_to_one else None
        for split, parts in shards.items()
    }
    described = {
        "format_version": needed_version(f for r in recipes.values() for f in r.fields()),
        "container": options.container,
        "shard_nbytes": options.shard_nbytes,
        "recipes": {name: [r.kind, r.options()] for name, r in recipes.items()},
        "fields": {name: [f.to_json() for f in r.fields()] for name, r in recipes.items()},
    }
    recipe_hash = hashlib.sha256(to_json(described)).hexdigest()
    times = [t for items in listing.splits.values() for item in items for t in item.times()]
    whole = to_json([recipe_hash, listing.fingerprint(), times])
    return Plan(
        listing=listing,
        out=out,
        recipes=recipes,
        shards=shards,
        capacities=capacities,
        container=options.container,
        recipe_hash=recipe_hash,
        run_hash=hashlib.sha256(whole).hexdigest(),
    )
