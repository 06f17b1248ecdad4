"""The files that a run will write, by name, before it writes one."""

import os
from collections.abc import Sequence
from itertools import chain

from loaders.format.containers import CONTAINERS
from loaders.format.spec import Manifest
from loaders.format.split_spec import SplitSpec
from preprocess.errors import OutputError
from preprocess.plan import Plan


def group_names(plan: Plan) -> list[str]:
    """Return the names of the files that will describe the shards to other readers."""
    splits = {
        name: SplitSpec(
            fields=plan.recipes[name].fields(),
            capacity=plan.capacities[name],
            items=plan.places(name),
            counts=(1,) * len(shards),
            values={field.name: (1,) * len(shards) for field in plan.recipes[name].fields()},
            files={},
            statistics={},
            class_counts=None,
        )
        for name, shards in plan.shards.items()
    }
    described = Manifest(
        container=plan.container,
        kind=plan.recipe.kind,
        recipe={},
        recipe_hash=plan.recipe_hash,
        source_hash=plan.listing.fingerprint(),
        classes=plan.listing.classes,
        skipped=0,
        splits=splits,
    )
    return sorted([*CONTAINERS[plan.container].group_files(described), *plan.extras])


def refuse_collisions(plan: Plan, beside_shards: Sequence[str]) -> None:
    """Refuse a run one of whose files is there already, written by somebody else.

    Args:
        plan: The run.
        beside_shards: Paths of what it will write beside its shards, below the dataset.

    Raises:
        OutputError: One is there.
    """
    named = [plan.out / name for name in beside_shards]
    shards = (task.shard_path(column) for task in plan.tasks() for column in task.columns())
    for path in chain(named, shards):
        if os.path.lexists(path):
            raise OutputError(f"{path}: is there already, and prep did not write it; move it")
