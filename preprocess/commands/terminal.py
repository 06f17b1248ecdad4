"""What the commands print: data to stdout, progress to stderr and only to a terminal."""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preprocess.commands.described import (
    SHOWN,
    classes_text,
    encoding_json,
    encoding_text,
    split_text,
)
from preprocess.errors import OutputError
from preprocess.items import printable
from preprocess.output import find_complete, replaced_nbytes
from preprocess.plan import Plan
from preprocess.report import human_nbytes
from preprocess.room import check_room
from preprocess.run import OnProgress
from preprocess.task import read_receipt

if TYPE_CHECKING:
    from preprocess.check import CheckReport
    from preprocess.images.bucket_preview import BucketPreview
    from preprocess.images.compare import Measured


def print_text(text: str) -> None:
    """Print lines for people, on any terminal: names that are not text are escaped."""
    click.echo("\n".join(printable(line) for line in text.split("\n")))


def print_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=1))


@contextmanager
def progress_bar(plan: Plan) -> Iterator[OnProgress]:
    """Show rate, time left, skipped items and bytes, on a terminal; elsewhere stay quiet.

    Args:
        plan: What is to be done. Where items become any number of samples, how far it is follows
            from the bytes.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda *_: None
        return
    import threading

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        MofNCompleteColumn() if plan.recipe.one_to_one else TextColumn("{task.percentage:.0f} %"),
        BarColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[written]}"),
        TextColumn("{task.fields[skipped]}"),
        TimeRemainingColumn(),
    )
    done = [0, 0, 0]
    lock = threading.Lock()
    nbytes = plan.nbytes
    total = human_nbytes(nbytes)
    counted = plan.recipe.one_to_one
    whole = sum(len(task.items) for task in plan.tasks()) if counted else nbytes
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=whole, rate="", written="", skipped="0 skipped")

        def advance(made: int, skipped: int, written: int) -> None:
            with lock:
                done[0] += made
                done[1] += skipped
                done[2] += written
                speed = progress.tasks[0].speed
                progress.update(
                    task,
                    completed=done[0] + done[1] if counted else min(done[2], whole),
                    rate=f"{speed:,.1f}/s" if speed and counted else f"{done[0]:,} samples",
                    written=f"{human_nbytes(done[2])} of {total}",
                    skipped=f"{done[1]:,} skipped",
                )

        yield advance


def check_plan(plan: Plan, *, overwrite: bool) -> None:
    """Refuse what the run itself would refuse, touching nothing.

    Raises:
        OutputError: The output folder holds something else or cannot be written, or the disk is
            too small.
    """
    if find_complete(plan, overwrite=overwrite) is not None:
        return
    folder = _nearest_folder(plan.out)
    effective = os.access in os.supports_effective_ids
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
        raise OutputError(f"{plan.out}: cannot write: nothing may be made in {folder}")
    replaced = replaced_nbytes(plan) if overwrite else 0
    left = _nbytes_left(plan, overwrite=overwrite)
    check_room(plan.out, left + plan.nbytes_beside - replaced)


def _nearest_folder(out: Path) -> Path:
    return next(folder for folder in (out, *out.parents) if folder.is_dir())


def _nbytes_left(plan: Plan, *, overwrite: bool) -> int:
    """Return the bytes of the shards that the run would write."""
    if overwrite:
        return plan.nbytes
    if find_complete(plan, overwrite=False) is not None:
        return 0
    return sum(task.nbytes for task in plan.tasks() if read_receipt(task) is None)


def describe_plan(plan: Plan, *, overwrite: bool) -> dict[str, Any]:
    """Return what a run would write, as JSON values."""
    counts = {
        name: sum(plan.recipes[name].too_large(item) is None for items in shards for item in items)
        for name, shards in plan.new_shards().items()
    }
    return {
        "out": printable(str(plan.out)),
        "container": plan.container,
        "splits": {
            name: {
                "samples": counts[name] if plan.capacities[name] else None,
                "items": counts[name],
                "shards": len(shards),
                "samples_per_shard": plan.capacities[name],
                "fields": {
                    field.name: {
                        "dtype": field.dtype,
                        "shape": ["any length", *field.shape]
                        if field.ragged
                        else list(field.shape),
                        **encoding_json(field),
                    }
                    for field in plan.recipes[name].fields()
                },
            }
            for name, shards in plan.new_shards().items()
        },
        "classes": list(plan.listing.classes),
        "skipped": len(plan.listing.skipped) + len(plan.too_large()),
        "ignored": plan.listing.ignored,
        "notes": [printable(note) for note in plan.listing.notes],
        "nbytes": plan.nbytes,
        "nbytes_beside": plan.nbytes_beside,
        "nbytes_left": _nbytes_left(plan, overwrite=overwrite),
        "nbytes_free": shutil.disk_usage(_nearest_folder(plan.out)).free,
    }


def print_plan(
    plan: Plan,
    storage: "Sequence[Measured] | None" = None,
    buckets: "Sequence[BucketPreview] | None" = None,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Print what a run would write, to which buckets, and what other ways to store it would take.

    Args:
        plan: What it would do.
        storage: Ways to store it, as measured.
        buckets: The buckets that photos go to.
        overwrite: Whether what is there is removed first.
        as_json: Print JSON.
    """
    described = describe_plan(plan, overwrite=overwrite)
    if as_json:
        if storage is not None:
            described["storage"] = [way.to_json() for way in storage]
        for one in buckets or ():
            described.setdefault("buckets", {}).setdefault(one.split, {})[one.size] = one.to_json()
        print_json(described)
        return
    lines = []
    for name, split in described["splits"].items():
        lines += [split_text(name, split), _fields_text(split["fields"])]
    lines.append(classes_text(described["classes"]))
    lines += [f"note: {note}" for note in described["notes"]]
    lines += [f"ignored: {count:,} {reason}" for reason, count in described["ignored"].items()]
    for errors, why in (
        (plan.listing.skipped, "not readable files"),
        (plan.too_large(), "too large"),
    ):
        if errors:
            lines.append(f"skipped: {len(errors):,} that are {why}")
            lines += [f"  {printable(str(error))}" for error in errors[:SHOWN]]
    lines += _room_lines(plan, described)
    if buckets is not None:
        from preprocess.images.bucket_preview import preview_lines

        lines += preview_lines(buckets)
    if storage is not None:
        from preprocess.images.compare import storage_lines

        lines += storage_lines(storage, human_nbytes)
    print_text("\n".join(lines))


def _room_lines(plan: Plan, described: dict[str, Any]) -> Iterator[str]:
    """Say how much would be written, and how much room there is."""
    nbytes, left = described["nbytes"], described["nbytes_left"]
    about = "about " if any(task.is_estimated for task in plan.tasks()) else ""
    yield f"to be written: {about}{human_nbytes(nbytes)} ({nbytes:,} bytes) to {plan.out}"
    if beside := described["nbytes_beside"]:
        yield f"beside the shards: {human_nbytes(beside)} ({beside:,} bytes)"
    if left != nbytes:
        yield f"of the shards, still to do: {human_nbytes(left)} ({left:,} bytes)"
    yield f"free there: {human_nbytes(described['nbytes_free'])}"


def _fields_text(fields: dict[str, Any]) -> str:
    lines = [
        f"  {name:<16} {f['dtype']:<7} {f['shape'] or ''}{encoding_text(f)}"
        for name, f in fields.items()
    ]
    return "\n".join(line.rstrip() for line in lines)


def check_text(report: "CheckReport") -> str:
    """Return what a check found, for people."""
    lines = [printable(problem) for problem in report.problems]
    lines += [
        f"not part of the dataset, and may be removed: {printable(name)}" for name in report.foreign
    ]
    what = "sizes and checksums" if report.full else "sizes"
    count = len(report.problems)
    beside = report.nbytes - report.shard_nbytes
    verdict = f"{count:,} problem{'s' * (count != 1)}" if count else "all good"
    size = human_nbytes(report.nbytes)
    if beside:
        size = (
            f"{size} ({human_nbytes(report.shard_nbytes)} in shards, {human_nbytes(beside)} beside)"
        )
    lines.append(f"{report.path}: {report.files:,} files, {size}, {what}: {verdict}")
    return "\n".join(lines)
