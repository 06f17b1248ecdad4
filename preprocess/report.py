"""What a run did, for people and for programs."""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from loaders.errors import FormatError, MissingShardError
from loaders.format.files import read_json
from preprocess.items import printable

_TOOLS: Final = (
    "prepshards",
    "numpy",
    "torch",
    "opencv-python-headless",
    "pillow",
    "simplejpeg",
    "numcodecs",
)
_TEXT_TOOLS: Final = ("pyarrow", "transformers", "tokenizers")
_EXTRAS: Final = (
    "pillow-heif",
    "pillow-jxl-plugin",
    "fastokens",
    "gigatoken",
    "nanotoken",
    "datasketch",
)
"""Packages that need not be there."""

_ASIDE: Final[Mapping[str, type | tuple[type, ...]]] = {
    "shard_nbytes": int,
    "limit": int,
    "follow_links": bool,
    "tokenizer": (str, dict),
    "like": str,
    "masks": str,
    "boxes": str,
    "metadata": dict,
}
"""What a report may tell beside the manifest, and its JSON types."""

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a finished run did.

    Attributes:
        out: The dataset's folder.
        run_hash: SHA-256 over options and input, times of change included.
        samples: Samples in the dataset, by split.
        nbytes: Bytes in its shards.
        seconds: Wall time of this run, from the first shard to the manifest.
        made: Samples that this run made; the rest were finished by an earlier, interrupted one.
        skipped: (key, reason) of every item that could not become a sample.
        max_skipped: How many skipped items were accepted beforehand.
        ignored: Why other files were passed over -> how many.
        notes: What the user should know.
        workers: Workers used.
        backend: joblib backend used; "" when nothing was left to do.
        redone: Shards that were made again by the reference: their first result differed from it.
        tallies: What the recipe has counted, over all splits.
        aside: What a repair needs beside the manifest to plan the same again, as JSON values.
    """

    out: Path
    run_hash: str
    samples: Mapping[str, int]
    nbytes: int
    seconds: float
    made: int
    skipped: Sequence[tuple[str, str]]
    max_skipped: int
    ignored: Mapping[str, int]
    notes: Sequence[str]
    workers: int
    backend: str
    redone: int = 0
    tallies: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    aside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def too_many_skipped(self) -> bool:
        """Whether more items were skipped than was accepted beforehand."""
        return len(self.skipped) > self.max_skipped

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, with the versions of the tools that took part."""
        reasons = Counter(reason for _, reason in self.skipped)
        return {
            "out": printable(str(self.out)),
            "run_hash": self.run_hash,
            "samples": dict(self.samples),
            "nbytes": self.nbytes,
            "seconds": round(self.seconds, 3),
            "samples_made": self.made,
            "samples_per_second": round(self.made / self.seconds, 1) if self.seconds > 0 else None,
            "skipped": len(self.skipped),
            "skipped_by_reason": dict(reasons.most_common()),
            "ignored": dict(self.ignored),
            "notes": [printable(note) for note in self.notes],
            "workers": self.workers,
            "backend": self.backend,
            "redone_shards": self.redone,
            "tallies": {name: list(sums) for name, sums in self.tallies.items()},
            "aside": dict(self.aside),
            "tools": tool_versions(),
        }

    def to_text(self) -> str:
        """Return lines for people."""
        total = sum(self.samples.values())
        splits = ", ".join(f"{name} {count:,}" for name, count in self.samples.items())
        held = f"{total:,} samples ({splits}), {human_nbytes(self.nbytes)} in {self.out}"
        lines = [held]
        if not self.backend:
            lines = [f"nothing to do: {held}, complete, from the same input and options"]
        elif self.seconds > 0:
            rate = f"{self.made / self.seconds:,.1f} samples/s"
            lines.append(
                f"{self.made:,} made in {self.seconds:.1f} s: {rate}, {self.workers} workers "
                f"({self.backend})"
            )
        if self.redone:
            lines.append(f"made again: {self.redone:,} shards, whose first result was wrong")
        lines += [f"note: {printable(note)}" for note in self.notes]
        lines += [f"ignored: {count:,} {reason}" for reason, count in self.ignored.items()]
        if self.skipped:
            lines.append(f"skipped: {len(self.skipped):,}, all listed in {self.out}/skipped.jsonl")
            shown = self.skipped[:_SHOWN]
            lines += [f"  {printable(key)}: {printable(reason)}" for key, reason in shown]
        return "\n".join(lines)


def tool_versions() -> dict[str, str]:
    """Return the versions of what takes part in preparing."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    versions = {name: _version(name) for name in (*_TOOLS, *_TEXT_TOOLS, *_EXTRAS)}
    return found | {name: known for name, known in versions.items() if known is not None}


@cache  # looked up in the folders of all packages, and what a process has loaded stays as it is
def _version(name: str) -> str | None:
    """Return the version of a package; None for an extra that is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None if name in _EXTRAS else "not installed as a package"


def human_nbytes(count: int) -> str:
    """Return a size for people: decimal units, three digits."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} PB"


def read_aside(path: Path) -> Mapping[str, Any]:
    """Return what a report tells of its run beside the manifest; nothing without one.

    Then the defaults are tried: the manifest's hash says whether they were used.
    """
    try:
        return known_aside(read_json(path)["aside"])
    except (MissingShardError, FormatError, KeyError, TypeError, AttributeError):
        return {}


def known_aside(aside: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is known, and as it should be, of what was told beside a manifest."""
    return {n: aside[n] for n, kind in _ASIDE.items() if isinstance(aside.get(n), kind)}
