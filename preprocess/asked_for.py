"""What a run was asked for: one that has made a dataset, or one that was stopped before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loaders.errors import FormatError
from loaders.format.files import ITEMS, REPORT, WORK, to_json, write_atomically
from loaders.format.spec import Manifest
from loaders.format.strict import Place
from preprocess.item_record import RecordedRun, read_record, record_lines
from preprocess.plan import Plan
from preprocess.removal import ASKED_FOR, RUN, read_begun
from preprocess.report import known_aside, read_aside
from preprocess.staged import beside

_DIGITS: Final = 16
"""Of a run's hash, in the name of the file with its items: it is of that run and no other."""


@dataclass(frozen=True, slots=True)
class AskedFor:
    """What a run was asked for.

    Attributes:
        recipe: What its recipe has recorded, perhaps with facts beside the options.
        container: How its bytes are laid out.
        aside: What it was told beside, as far as it is known.
        runs: Its items; None where they are not known.
    """

    recipe: Mapping[str, Any]
    container: str
    aside: Mapping[str, Any]
    runs: Sequence[RecordedRun] | None


def asked_for(out: Path, manifest: Manifest) -> AskedFor:
    """Return what the dataset in a folder was asked for.

    Raises:
        FormatError: The record of its items is damaged.
    """
    return AskedFor(
        manifest.recipe,
        manifest.container,
        read_aside(beside(out, REPORT)),
        read_record(beside(out, ITEMS)),
    )


def note_begun(plan: Plan, described: Sequence[str]) -> None:
    """Note in the work folder what a run is, before it writes its first shard.

    Args:
        plan: The run.
        described: Paths of the files that it will write beside its shards and that no receipt
            tells of, below the dataset.
    """
    work = plan.out / WORK
    if plan.before is None:  # else the dataset that is there says it
        write_atomically(work / _items(plan.run_hash), record_lines(plan.runs()))
    asked = {
        "recipe": dict(plan.options),
        "container": plan.container,
        "aside": dict(plan.aside),
    }
    begun = {"run_hash": plan.run_hash, "files": [*described], ASKED_FOR: asked}
    write_atomically(work / RUN, to_json(begun))


def asked_for_begun(out: Path) -> AskedFor | None:
    """Return what the run was asked for that was stopped in a folder; None if it is not known.

    Raises:
        MissingShardError: None was.
        FormatError: Its note is damaged.
    """
    begun = read_begun(out)
    if ASKED_FOR not in begun:
        return None
    place = Place(str(out / WORK / RUN)).at(ASKED_FOR)
    asked = place.mapping(begun[ASKED_FOR], {"recipe", "container", "aside"})
    aside = place.at("aside").partial_mapping(asked["aside"], None)
    recipe = place.at("recipe").partial_mapping(asked["recipe"], None)
    try:
        runs = read_record(out / WORK / _items(begun["run_hash"]))
    except FormatError:
        runs = None
    container = place.at("container").text(asked["container"])
    return AskedFor(recipe, container, known_aside(aside), runs)


def _items(run_hash: str) -> str:
    return f"{run_hash[:_DIGITS]}.{ITEMS}"
