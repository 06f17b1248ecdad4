"""What `prep info` says of a dataset, and what it shares with what a dry run says of a plan."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from loaders.format.fields import FieldSpec
from loaders.format.spec import Manifest, read_manifest
from preprocess.images.info import buckets_text, describe_buckets
from preprocess.items import printable
from preprocess.report import human_nbytes
from preprocess.tables.info import describe_table, table_text
from preprocess.tables.options import TableOptions

SHOWN: Final = 8
"""Classes named in a line for people; the rest are counted."""


def split_text(name: str, split: dict[str, Any]) -> str:
    """Return how many samples and shards a split has, for people."""
    samples, shards, most = split["samples"], split["shards"], split["samples_per_shard"]
    if samples is None:
        what = f"{split['items']:,} item{'s' * (split['items'] != 1)}"
    else:
        what = f"{samples:,} sample{'s' * (samples != 1)}"
    size = "" if most is None else f" of up to {most:,}"
    return f"{name}: {what} in {shards:,} shard{'s' * (shards != 1)}{size}"


def encoding_json(field: FieldSpec) -> dict[str, Any]:
    """Return how a field is encoded, as JSON values; nothing where it is not."""
    return {} if field.encoding is None else {"encoding": field.encoding.to_json()}


def encoding_text(facts: dict[str, Any]) -> str:
    """Return the same for people, after a space."""
    encoding = facts.get("encoding")
    return "" if encoding is None else f" {encoding['codec']} {encoding['level']}"


def classes_text(classes: list[str]) -> str:
    """Return the first classes, for people."""
    if not classes:
        return "classes: none"
    shown = ", ".join(printable(name) for name in classes[:SHOWN])
    return f"classes: {len(classes):,} ({shown}{', ...' if len(classes) > SHOWN else ''})"


def describe_dataset(path: Path) -> dict[str, Any]:
    """Return what a dataset holds, as JSON values.

    Raises:
        IncompleteError: There is no finished dataset.
        MissingShardError: A file that belongs to it is not there.
        FormatError: It is damaged.
    """
    manifest = read_manifest(path)
    found = _describe(manifest)
    if manifest.kind == "tokens":
        from preprocess.tokens.info import describe_tokens

        found["tokens"] = describe_tokens(manifest, path)
    more = {
        "buckets": describe_buckets(manifest, path),
        "table": describe_table(manifest, path),
    }
    return {**found, **{name: part for name, part in more.items() if part is not None}}


def dataset_texts(path: Path, described: dict[str, Any]) -> Iterator[str]:
    """Yield what `describe_dataset` has found, for people."""
    yield _info_text(path, described)
    if "buckets" in described:
        yield buckets_text(described["buckets"])
    if "table" in described:
        yield table_text(described["table"])
    if "tokens" in described:
        from preprocess.tokens.info import tokens_text

        yield tokens_text(described["tokens"])


def _describe(manifest: Manifest) -> dict[str, Any]:
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
                        "ragged": field.ragged,
                        **({} if field.record is None else {"record": list(field.record)}),
                        **encoding_json(field),
                        "nbytes": sum(
                            sum(split.files[column.name].nbytes) for column in field.columns()
                        ),
                    }
                    for field in split.fields
                },
                "statistics": {
                    field: {"mean": found["mean"], "std": found["std"]}
                    for field, found in ((k, v.to_json()) for k, v in split.statistics.items())
                },
                "class_counts": split.class_counts,
                "tallies": {tally: list(sums) for tally, sums in split.tallies.items()},
            }
            for name, split in manifest.splits.items()
        },
    }


def _info_text(path: Path, described: dict[str, Any]) -> str:
    lines = [
        (
            f"{path}: {described['kind']} in {described['container']} shards, "
            f"{human_nbytes(described['nbytes'])}, {described['skipped']:,} skipped"
        )
    ]
    # A table has as many options as columns have fates; most are as they are for all tables.
    usual = TableOptions().recorded() if described["kind"] == "table" else {}
    chosen = {
        name: value
        for name, value in described["recipe"].items()
        if value not in (None, "", []) and not (name in usual and value == usual[name])
    }
    recipe = ", ".join(f"{k}={v}" for k, v in chosen.items() if not isinstance(v, dict))
    lines.append(f"recipe: {recipe}")
    if described["kind"] == "images":
        lines.append(classes_text(described["classes"]))
    for name, split in described["splits"].items():
        lines.append(split_text(name, split))
        for field, facts in split["fields"].items():
            shape = facts["shape"] or ("any length" if facts["ragged"] else "scalar")
            if "record" in facts:
                shape = f"of {len(facts['record']):,} parts"
            shape = f"{shape}{encoding_text(facts)}"
            size = human_nbytes(facts["nbytes"])
            lines.append(f"  {field:<16} {facts['dtype']:<7} {shape!s:<18} {size:>8}")
        for field, facts in split["statistics"].items():
            if facts["mean"] is not None:
                mean = " ".join(f"{value:.4f}" for value in facts["mean"])
                std = " ".join(f"{value:.4f}" for value in facts["std"])
                lines.append(f"  {field}: mean {mean}, std {std}")
        if split["class_counts"] is not None:
            counts = zip(described["classes"], split["class_counts"], strict=True)
            shown = [f"{printable(c)} {n:,}" for c, n in list(counts)[:SHOWN]]
            more = ", ..." if len(described["classes"]) > len(shown) else ""
            lines.append(f"  samples of each class: {', '.join(shown)}{more}")
    return "\n".join(lines)
