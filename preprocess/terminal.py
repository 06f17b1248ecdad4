"""What the commands print: data to stdout, progress to stderr and only to a terminal."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from loaders.format.spec import Manifest
from preprocess.check import CheckReport
from preprocess.plan import Plan
from preprocess.report import human_nbytes
from preprocess.run import OnProgress
from preprocess.sources import printable


def print_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=1))


@contextmanager
def progress_bar(samples: int, nbytes: int) -> Iterator[OnProgress]:
    """Show rate, time left, skipped items and bytes, on a terminal; elsewhere stay quiet.

    Args:
        samples: Items to be prepared.
        nbytes: Bytes to be written if none is skipped.
    """
    if not sys.stderr.isatty():
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
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[written]}"),
        TextColumn("{task.fields[skipped]}"),
        TimeRemainingColumn(),
    )
    done = [0, 0, 0]
    lock = threading.Lock()
    total = human_nbytes(nbytes)
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=samples, rate="", written="", skipped="0 skipped")

        def advance(made: int, skipped: int, written: int) -> None:
            with lock:
                done[0] += made
                done[1] += skipped
                done[2] += written
                speed = progress.tasks[0].speed
                progress.update(
                    task,
                    completed=done[0] + done[1],
                    rate=f"{speed:,.1f}/s" if speed else "",
                    written=f"{human_nbytes(done[2])} of {total}",
                    skipped=f"{done[1]:,} skipped",
                )

        yield advance


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """Print what a run would write."""
    nearest = next(folder for folder in (plan.out, *plan.out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(nearest).free
    described: dict[str, Any] = {
        "out": printable(str(plan.out)),
        "container": plan.container,
        "splits": {
            name: {
                "samples": len(items),
                "shards": -(-len(items) // plan.capacities[name]),
                "samples_per_shard": plan.capacities[name],
                "fields": {
                    field.name: {"dtype": field.dtype, "shape": list(field.shape)}
                    for field in plan.recipes[name].fields()
                },
            }
            for name, items in plan.listing.splits.items()
        },
        "classes": [printable(name) for name in plan.listing.classes],
        "skipped": len(plan.listing.skipped),
        "ignored": plan.listing.ignored,
        "notes": [printable(note) for note in plan.listing.notes],
        "nbytes": plan.nbytes,
        "nbytes_free": free,
    }
    if as_json:
        print_json(described)
        return
    for name, split in described["splits"].items():
        per_shard = f"{split['shards']:,} shards of up to {split['samples_per_shard']:,}"
        click.echo(f"{name}: {split['samples']:,} samples in {per_shard}")
        click.echo(_fields_text(split["fields"]))
    click.echo(_classes_text(described["classes"]))
    for note in described["notes"]:
        click.echo(f"note: {note}")
    for reason, count in described["ignored"].items():
        click.echo(f"ignored: {count:,} {reason}")
    if described["skipped"]:
        click.echo(f"skipped: {described['skipped']:,} that cannot be read, before decoding any")
    click.echo(f"to be written: {human_nbytes(plan.nbytes)} ({plan.nbytes:,} bytes) to {plan.out}")
    click.echo(f"free there: {human_nbytes(free)}")


def _fields_text(fields: dict[str, Any]) -> str:
    lines = [f"  {name:<16} {f['dtype']:<7} {f['shape'] or ''}" for name, f in fields.items()]
    return "\n".join(line.rstrip() for line in lines)


def _classes_text(classes: list[str]) -> str:
    shown = ", ".join(classes[:8]) + (", ..." if len(classes) > 8 else "")
    return f"classes: {len(classes):,} ({shown})" if classes else "classes: none"


def describe(manifest: Manifest) -> dict[str, Any]:
    """Return what a dataset holds, as JSON values."""
    return {
        "container": manifest.container,
        "kind": manifest.kind,
        "recipe": dict(manifest.recipe),
        "classes": list(manifest.classes),
        "skipped": manifest.skipped,
        "nbytes": sum(
            sum(files.nbytes)
            for split in manifest.splits.values()
            for files in split.files.values()
        ),
        "splits": {
            name: {
                "samples": split.count,
                "shards": len(split.counts),
                "samples_per_shard": split.capacity,
                "fields": {
                    field.name: {
                        "dtype": field.dtype,
                        "shape": list(field.shape),
                        "nbytes": sum(split.files[field.name].nbytes),
                    }
                    for field in split.fields
                },
                "statistics": {
                    field: {"mean": found["mean"], "std": found["std"]}
                    for field, found in ((k, v.to_json()) for k, v in split.statistics.items())
                },
                "class_counts": split.class_counts,
            }
            for name, split in manifest.splits.items()
        },
    }


def info_text(path: Path, described: dict[str, Any]) -> str:
    """Return what a dataset holds, for people."""
    lines = [
        (
            f"{path}: {described['kind']} in {described['container']} shards, "
            f"{human_nbytes(described['nbytes'])}, {described['skipped']:,} skipped"
        )
    ]
    recipe = ", ".join(f"{key}={value}" for key, value in described["recipe"].items())
    lines += [f"recipe: {recipe}", _classes_text([printable(c) for c in described["classes"]])]
    for name, split in described["splits"].items():
        lines.append(
            f"{name}: {split['samples']:,} samples in {split['shards']:,} shards of up to "
            f"{split['samples_per_shard']:,}"
        )
        for field, facts in split["fields"].items():
            shape = facts["shape"] or "scalar"
            size = human_nbytes(facts["nbytes"])
            lines.append(f"  {field:<16} {facts['dtype']:<7} {shape!s:<18} {size:>8}")
        for field, facts in split["statistics"].items():
            if facts["mean"] is not None:
                mean = " ".join(f"{value:.4f}" for value in facts["mean"])
                std = " ".join(f"{value:.4f}" for value in facts["std"])
                lines.append(f"  {field}: mean {mean}, std {std}")
        if split["class_counts"] is not None:
            counts = zip(described["classes"], split["class_counts"], strict=True)
            shown = [f"{printable(c)} {n:,}" for c, n in list(counts)[:8]]
            more = ", ..." if len(described["classes"]) > len(shown) else ""
            lines.append(f"  samples of each class: {', '.join(shown)}{more}")
    return "\n".join(lines)


def check_text(report: CheckReport) -> str:
    """Return what a check found, for people."""
    lines = [printable(problem) for problem in report.problems]
    lines += [f"not part of the dataset: {printable(name)}" for name in report.foreign]
    what = "sizes and checksums" if report.full else "sizes"
    verdict = f"{len(report.problems)} bad" if report.problems else "all good"
    size = human_nbytes(report.nbytes)
    lines.append(f"{report.path}: {report.files:,} files, {size}, {what}: {verdict}")
    return "\n".join(lines)
