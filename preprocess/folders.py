"""What the folders of a source mean: splits and classes, as pure functions of the items' keys."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from loaders.format.spec import SPLITS
from preprocess.errors import SourceError

LabelMode = Literal["auto", "folders", "none"]

SPLIT_FOLDERS: Final = {
    "train": "train",
    "validation": "validation",
    "val": "validation",
    "test": "test",
}
"""Top folder -> split."""

_SPLIT_LIKE: Final = frozenset({"training", "valid", "dev", "eval", "testing", *SPLIT_FOLDERS})
"""Top folders, in lower case, that are probably meant as splits."""


@dataclass(frozen=True, slots=True)
class Splits:
    """How items fall into splits.

    Attributes:
        members: Split name -> positions of its items, in order.
        depth: Path parts that name the split: 0 or 1.
        notes: What the user should know about it.
    """

    members: Mapping[str, Sequence[int]]
    depth: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Classes:
    """How items fall into classes.

    Attributes:
        names: Class names in label order: the order of their bytes.
        labels: Split name -> class index of each of its items; splits without labels are absent.
    """

    names: tuple[str, ...]
    labels: Mapping[str, Sequence[int]]


def find_splits(keys: Sequence[str], source: Path) -> Splits:
    """Find the splits: top folders `train`, `validation` or `val`, and `test`.

    Args:
        keys: Paths below the source, with `/`.
        source: Names the source in errors.

    Raises:
        SourceError: Items lie beside `train`, or one split has two folders.
    """
    tops = {key.partition("/")[0] for key in keys if "/" in key}
    named = tops & set(SPLIT_FOLDERS)
    stray = next((key for key in keys if _top(key) not in named), None)
    if not named or (stray is not None and "train" not in named):
        # A class may be called "test"; it is a split only in the company of others.
        return Splits({"train": range(len(keys))}, 0, _notes(tops))
    if stray is not None:
        folders = ", ".join(f"{name}/" for name in sorted(named))
        raise SourceError(
            f"{source}: {stray} lies outside the split folders ({folders}); move it into one, or "
            "rename them if they are classes"
        )
    if {"val", "validation"} <= named:
        raise SourceError(f"{source}: both val/ and validation/ are there; keep one")
    groups: dict[str, list[int]] = {name: [] for name in SPLITS}
    for position, key in enumerate(keys):
        groups[SPLIT_FOLDERS[_top(key)]].append(position)
    return Splits({name: group for name, group in groups.items() if group}, 1)


def _top(key: str) -> str:
    top, slash, _ = key.partition("/")
    return top if slash else ""


def _notes(tops: set[str]) -> tuple[str, ...]:
    """Say when top folders look like splits and are not taken as such."""
    alike = sorted(top for top in tops if top.lower() in _SPLIT_LIKE)
    if not alike:
        return ()
    names = ", ".join(f"{name}/" for name in alike)
    note = (
        f"{names}: taken as a part of train, not as a split; split folders are called train/, "
        "validation/ (or val/) and test/, and hold all items"
    )
    return (note,)


def find_classes(
    keys: Mapping[str, Sequence[str]], depth: int, source: Path, *, insist: bool, notes: list[str]
) -> Classes:
    """Find the classes: the folders at `depth`, in each split where every item lies in one.

    Args:
        keys: Split name -> paths of its items.
        depth: Path parts above the class folder.
        source: Names the source in errors.
        insist: Refuse items outside class folders, instead of storing no labels.
        notes: Gets a line for each split that has no labels because of some items.

    Raises:
        SourceError: An item lies in no class folder, and labels were insisted on.
    """
    folders: dict[str, list[str]] = {}
    for name, group in keys.items():
        found = [_class_of(key, depth) for key in group]
        bare = found.count("")
        if not bare:
            folders[name] = found
            continue
        first = group[found.index("")]
        if insist:
            raise SourceError(
                f"{source}: {first} lies in no class folder; move it into one, or give "
                "--labels none"
            )
        if bare < len(group):
            notes.append(
                f"{name}: no labels, since {bare:,} of {len(group):,} items lie in no class "
                f"folder (the first is {first})"
            )
    bare_splits = [name for name in keys if name not in folders]
    if folders and bare_splits:
        notes.append(
            f"labels are stored for {', '.join(folders)} and not for {', '.join(bare_splits)}"
        )
    names = tuple(sorted({folder for found in folders.values() for folder in found}, key=_bytes))
    index = {name: label for label, name in enumerate(names)}
    return Classes(
        names, {name: [index[folder] for folder in found] for name, found in folders.items()}
    )


def _bytes(name: str) -> bytes:
    return os.fsencode(name)


def _class_of(key: str, depth: int) -> str:
    parts = key.split("/")
    return parts[depth] if len(parts) > depth + 1 else ""
