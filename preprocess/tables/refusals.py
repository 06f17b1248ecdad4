"""What a refusal of a table says beside its cause: of which source it is, and what is missing."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, NoReturn

from loaders.format.files import SKIPPED, write_atomically
from preprocess.errors import SampleError, SourceError, output_error
from preprocess.plan import Plan
from preprocess.skipped import as_pairs, skipped_lines
from preprocess.tables.spill import Spilled

_LOOKED_AT: Final = 1000
"""Records that are left out whose causes are read for a remedy."""


class TooFewRowsError(SourceError):
    """The rows that could be read do not do; those that are left out may be the cause."""


@contextmanager
def refusals_named(name: str, spilled: Spilled) -> Iterator[None]:
    """Let every refusal name the source, or the file of it that is to blame.

    Args:
        name: The source.
        spilled: The parsed table.

    Raises:
        SourceError: With that; where rows are wanting, also what is left out of them.
    """
    try:
        yield
    except SourceError as error:
        said = str(error)
        keys = {block.key for block in spilled.blocks}
        if not any(said.startswith(f"{key}:") for key in (name, *keys)):
            said = f"{name}: {said}"
        if isinstance(error, TooFewRowsError):
            said += _left_out(spilled.errors)
        raise SourceError(said) from error


def _left_out(errors: Sequence[SampleError]) -> str:
    """Say what is left out of the rows, for the end of a message."""
    if not errors:
        return ""
    count = len(errors)
    said = f"; {count:,} record{'s' * (count != 1)} or files are left out, "
    said += f"{'the first: ' * (count > 1)}{errors[0]}"
    if any("UTF-8" in error.reason for error in islice(errors, _LOOKED_AT)):
        said += "; --encoding names the encoding of files that are not UTF-8"
    return said


def refuse_empty(plan: Plan, skipped: Sequence[SampleError], *, listed: bool) -> NoReturn:
    """Refuse a source without rows.

    Args:
        plan: What is known of the run.
        skipped: What could not be read.
        listed: List that where the dataset would be, unless something else is there.

    Raises:
        SourceError: Always.
    """
    name = plan.listing.name
    if not skipped:
        raise SourceError(f"{name}: empty, it has no row; no dataset is written")
    said = f"{name}: no record could be read, no dataset is written; "
    said += f"the first of {len(skipped):,} faults: " if len(skipped) > 1 else ""
    said += str(skipped[0])
    if listed and _is_free(plan.out):
        try:
            plan.out.mkdir(parents=True, exist_ok=True)
            write_atomically(plan.out / SKIPPED, skipped_lines(as_pairs(skipped)))
        except OSError as error:
            raise output_error(plan.out, error) from error
        said += f"; listed in {plan.out / SKIPPED}"
    raise SourceError(said)


def _is_free(out: Path) -> bool:
    """Say whether a folder holds nothing, or what an earlier refusal has listed there."""
    return not out.is_dir() or {path.name for path in out.iterdir()} <= {SKIPPED}
