"""What tells a run from the one that made a dataset: options and items by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loaders.errors import FormatError, MissingShardError
from loaders.format.fields import FieldSpec
from loaders.format.files import REPORT, read_json
from loaders.format.spec import SPLITS, Manifest
from preprocess.asked_for import AskedFor, asked_for, asked_for_begun
from preprocess.item_record import RecordedItem, RecordedRun, record_item
from preprocess.items import Item, Listing, printable
from preprocess.plan import Plan
from preprocess.spelling import flag_of
from preprocess.staged import beside

_SHOWN: Final = 3
"""Options or items that a message names."""

_OTHER_OPTIONS: Final = "holds a dataset made with other options"
_KINDS: Final = {"table": "a table"}

_VALUE: Final = 80
"""Characters of a value that a message repeats."""


def difference(plan: Plan, manifest: Manifest) -> str | None:
    """Say what tells a run from the one that made the dataset in its folder; None if it is it."""
    same = (plan.recipe_hash, plan.listing.fingerprint(), plan.run_hash)
    if same == (manifest.recipe_hash, manifest.source_hash, recorded_run(plan.out)):
        return None  # without looking at every item
    input_ = "holds a dataset made from other input"
    there = asked_for(plan.out, manifest)
    runs = there.runs
    if named := other_kind(plan, manifest) or _other_making(plan, there):
        return named
    if runs is not None:
        found = compare_items(plan.listing, runs)
        if found.gone_or_other:
            return f"{input_}: {found.names}"
        if found.new:
            return f"{input_}: {found.new_names} (--append adds what is new)"
    if manifest.recipe_hash != plan.recipe_hash:
        named = other_fields(plan, manifest)
        return f"{_OTHER_OPTIONS}: {named}" if named else _OTHER_OPTIONS
    if manifest.source_hash != plan.listing.fingerprint():
        return input_
    changed = "input files were changed since this dataset was made"
    if runs is not None:
        return f"{changed}: {found.written}" if found.written else None
    if recorded_run(plan.out) not in {None, plan.run_hash}:
        return f"{changed} (their names and sizes are the same, their times are not)"
    return None


def _other_making(plan: Plan, there: AskedFor) -> str:
    named = other_options(plan, there)
    return f"{_OTHER_OPTIONS}: {named}" if named else ""


def other_kind(plan: Plan, manifest: Manifest) -> str:
    """Say that a dataset is of another modality; "" if it is of the same."""
    if manifest.kind == plan.kind:
        return ""
    there, here = (_KINDS.get(kind, kind) for kind in (manifest.kind, plan.kind))
    return f"holds a dataset of {there}, and this run makes one of {here}"


def difference_begun(plan: Plan) -> str:
    """Say what tells a run from the one that was stopped in its folder: they are not the same."""
    there = asked_for_begun(plan.out)
    if there is None:
        return "with other options or other input"
    if named := other_options(plan, there):
        return f"with other options: {named}"
    if there.runs is None:
        return "with other input, or of another version of prep"
    found = compare_items(plan.listing, there.runs)
    if found.names:
        return f"of other input: {found.names}"
    if found.written:
        return f"whose input files have other times than when it began: {found.written}"
    return "with other classes, or of another version of prep"


def recorded_run(out: Path) -> str | None:
    """Return the run that `report.json` tells of; None if it tells of none."""
    try:
        return str(read_json(beside(out, REPORT))["run_hash"])
    except (MissingShardError, FormatError, KeyError, TypeError):
        return None  # not a part of the dataset: it need not be there


def other_options(plan: Plan, there: AskedFor) -> str:
    """Name the options that differ from those of another run, with both values; "" for none."""
    aside = there.aside
    recorded = {name: one for name, one in there.recipe.items() if name not in plan.fact_names}
    found = _other_values(plan.options, recorded) if plan.options else []
    if there.container != plan.container:
        found.append(_other_value("container", there.container, plan.container))
    found += [
        _other_value(name, aside.get(name), value)
        for name, value in plan.aside.items()
        if aside and name in {"shard_nbytes", "limit"} and aside.get(name) != value
    ]
    return some(found)


def _other_values(options: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    there, here = dict(_leaves("", recorded)), dict(_leaves("", options))
    return [
        _other_value(name, there.get(name), here.get(name))
        for name in dict.fromkeys([*here, *there])
        if there.get(name) != here.get(name)
    ]


def _other_value(keyword: str, there: Any, here: Any) -> str:
    if keyword == "header":  # its flag says the opposite
        there, here = not there, not here
    said = _NO_OPTIONS.get(keyword.partition(".")[0], flag_of(keyword))
    words = _WORDS.get(keyword, {})
    shown = [words[v] if v in ("", None) and words else _shown(v) for v in (there, here)]
    return f"{said} is {shown[0]} there, {shown[1]} here"


def other_fields(plan: Plan, manifest: Manifest) -> str:
    """Name what is stored otherwise; "" if nothing is."""
    found = []
    for name, split in manifest.splits.items():
        recipe = plan.recipes.get(name)
        here = {} if recipe is None else {spec.name: spec for spec in recipe.fields()}
        there = {spec.name: spec for spec in split.fields}
        found += [
            _other_field(plan.listing.splits[name], name, there.get(field), here.get(field))
            for field in (sorted(there.keys() | here.keys()) if here else ())
            if there.get(field) != here.get(field)
        ]
    return some(found)


def _other_field(
    items: Sequence[Item], split: str, there: FieldSpec | None, here: FieldSpec | None
) -> str:
    one = there or here
    name = "" if one is None else one.name
    if there is None or here is None:
        return f"{name} of {split} is stored {'here' if there is None else 'there'} alone"
    if there.role == here.role == "key":
        longest = max((i.key.encode(errors="surrogateescape") for i in items), key=len)
        return (
            f"names of {split} have up to {there.shape[0]} bytes there, {here.shape[0]} here, as "
            f"{printable(longest.decode(errors='surrogateescape'))} (--key-bytes at the first "
            "run leaves room for longer ones)"
        )
    return (
        f"{name} of {split} is {there.dtype} {list(there.shape)} there, "
        f"{here.dtype} {list(here.shape)} here"
    )


_WORDS: Final[Mapping[str, Mapping[str | None, str]]] = {
    "bos": {"": "none", None: "the tokenizer's own (--add-bos)"},
    "eos": {"": "none (--no-eos)", None: "the tokenizer's own"},
}
"""What values mean that name no token."""

_NO_OPTIONS: Final[Mapping[str, str]] = {
    "box_classes": "what --boxes has as classes",
    "buckets": "what --sizes have as buckets",
    "floats": "--depth, for what is of floating point,",
    "columns": "what --schema says of a column",
    "label_classes": "what --multi-label has as classes",
    "like_sha256": "the digest of what --like names",
    "texts": "what becomes of --text",
    "tokenizer_sha256": "the digest of what --tokenizer names",
    "version": "the version of the recipe",
}
"""What a recipe records that follows from options, and is none by that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDifferences:
    """What tells the items of a source from those that a dataset was made from.

    Attributes:
        gone_or_other: Names some that are gone, or of another size, label or split; "" for none.
        touched: Those of which nothing but times of change is other: as recorded, and now.
        new: Split name -> items that are new, in the order of the listing; only splits with some.
    """

    gone_or_other: str
    touched: Sequence[tuple[RecordedItem, Item]]
    new: Mapping[str, Sequence[Item]]

    @property
    def written(self) -> str:
        """Names some that were written to since; "" for none."""
        return some([f"{printable(old.key)} was written to since" for old, _ in self.touched])

    @property
    def names(self) -> str:
        """Names some that are gone or others now, and some that are new; "" for none."""
        return ", ".join(part for part in (self.gone_or_other, self.new_names) if part)

    @property
    def new_names(self) -> str:
        """Names some of the new items."""
        return some([f"{printable(i.key)} is new" for group in self.new.values() for i in group])


def compare_items(listing: Listing, runs: Sequence[RecordedRun]) -> ItemDifferences:
    """Compare the items of a source with those that a dataset was made from."""
    items = by_place(listing)
    known: set[Place] = set()
    other, touched = [], []
    for run in runs:
        for split, recorded in run.splits.items():
            for old in recorded:
                place = (split, old.key, old.start)
                known.add(place)
                item = items.get(place)
                if item is None:
                    other.append(_gone(split, old, items))
                    continue
                now = record_item(item, old.contents)
                if now._replace(times=old.times) != old:
                    other.append(_changed(old, now))
                elif now.times != old.times:
                    touched.append((old, item))
    new: dict[str, list[Item]] = {}
    for place, item in items.items():
        if place not in known:
            new.setdefault(place[0], []).append(item)
    return ItemDifferences(gone_or_other=some(other), touched=touched, new=new)


Place = tuple[str, str, int]
"""Split, key and start of an item."""


def by_place(listing: Listing) -> dict[Place, Item]:
    """Return the items of a listing by what names them."""
    return {
        (split, item.key, item.start): item
        for split, items in listing.splits.items()
        for item in items
    }


def _gone(split: str, old: RecordedItem, items: Mapping[Place, Item]) -> str:
    now = next((name for name in SPLITS if (name, old.key, old.start) in items), None)
    what = "is gone" if now is None else f"was in {split}, is in {now} now"
    return f"{printable(old.key)} {what}"


def _changed(old: RecordedItem, now: RecordedItem) -> str:
    name = printable(old.key)
    if now.nbytes != old.nbytes:
        return f"{name} had {old.nbytes:,} bytes, has {now.nbytes:,} now"
    if now.label != old.label:
        return f"{name} had label {_shown(old.label)}, has label {_shown(now.label)} now"
    if now.paired != old.paired:
        return f"{name} has another mask, other boxes, or the metadata say something else of it"
    return f"{name} is cut at another place"


def some(names: Sequence[str]) -> str:
    """Return the first few, and how many others there are; splits may have one file together."""
    names = [*dict.fromkeys(names)]
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield prefix, _as_json(value)
        return
    for name, inner in value.items():
        yield from _leaves(f"{prefix}.{name}" if prefix else name, inner)


def _as_json(value: Any) -> Any:
    return [_as_json(one) for one in value] if isinstance(value, list | tuple) else value


def _shown_item(item: Any) -> str:
    """Return a size as 512x384, the buckets of a column as name=100."""
    if not isinstance(item, list):
        return str(item)
    return ("x" if all(type(part) is int for part in item) else "=").join(map(str, item))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "given" if value else "not given"
    if isinstance(value, list):
        value = ", ".join(map(_shown_item, value)) or None
    text = "not set" if value is None else str(value) or "empty"
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}..."
