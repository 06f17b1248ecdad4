"""`prep repair`: makes the bad files of a dataset again, byte for byte, and touches no other."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from loaders.format.containers import CONTAINERS
from loaders.format.files import (
    ITEMS,
    REPORT,
    WORK,
    crc32c_digits,
    publish,
    sync_directory,
    write_atomically,
)
from loaders.format.promised import PromisedFile
from loaders.format.spec import Manifest, read_manifest
from preprocess.append import as_recorded
from preprocess.check import CheckReport, check_dataset
from preprocess.commit import read_skipped
from preprocess.differences import compare_items
from preprocess.errors import OutputError, SourceError, output_error
from preprocess.fatal import leave_out
from preprocess.images.prepare import plan_images
from preprocess.item_record import read_record
from preprocess.output import hold
from preprocess.plan import Plan, RunOptions
from preprocess.receipt import Receipt
from preprocess.recorded import Moved, Recorded, expect_there
from preprocess.repair_cause import cause_and_remedy, other_contents
from preprocess.report import Report, read_aside
from preprocess.room import check_room, saying_what_is_wanted
from preprocess.run import report_of
from preprocess.spelling import in_python
from preprocess.tables.fatal_files import refused_before
from preprocess.tables.prepare import plan_table, run_table
from preprocess.tokens.prepare import plan_tokens, run_tokens
from preprocess.workers import OnProgress, write_shards

_STAGING: Final = "repair"
"""Where files are made, in the work folder, until they are known to be the right ones."""

_BESIDE: Final = {
    "images": "--masks, --boxes or --metadata",
    "tokens": "--tokenizer",
    "table": "--like or --tokenizer",
}
"""What says where things are that a kind of dataset is made with, beside its source."""

_NOT_MOVED: Final = Moved()


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair did.

    Attributes:
        path: The dataset's folder.
        repaired: The files that were made again.
        check: What is there now: checksums were compared before, sizes after.
    """

    path: Path
    repaired: tuple[Path, ...]
    check: CheckReport

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"repaired": [str(path) for path in self.repaired], "check": self.check.to_json()}


def repair_dataset(
    path: Path | str,
    source: Any,
    *,
    moved: Moved = _NOT_MOVED,
    workers: int | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> RepairReport:
    """Make the bad files of a dataset again from its source, byte for byte as they were.

    All checksums are compared; what is missing or bad is made beside it, compared with the
    manifest, and only then put in its place.

    Args:
        path: The dataset's folder.
        source: What it was made from, as it was then.
        moved: Where things are now that it was made with, beside its source.
        workers: Samples prepared at a time; None for one per usable core.
        on_progress: Told (samples, skipped, bytes) as they are made, from worker threads.

    Raises:
        SourceError: The source is not there, or not what it was; nothing was put in place.
        OutputError: The folder cannot be written, or how the dataset was made is not known.
        IncompleteError: There is no finished dataset.
        FormatError: The manifest itself is damaged: nothing says what belongs there.
    """
    with in_python():
        return repair_files(Path(path), source, moved, workers, on_progress)


def repair_files(
    root: Path,
    source: Any,
    moved: Moved,
    workers: int | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> RepairReport:
    """Do what `repair_dataset` does, with errors that name flags."""
    read_manifest(root)
    expect_there(root, source, moved)
    bad = check_dataset(root, full=True, workers=workers).bad
    if bad:
        manifest, aside = read_manifest(root), read_aside(root / REPORT)
        job = _Repair(root, source, manifest, aside, moved, bad, workers, on_progress)
        claim = hold(root)
        try:
            job.carry_out()
        except OSError as error:
            raise output_error(root, error) from error
        finally:
            claim.release(finished=True)
    check = check_dataset(root, workers=workers)
    return RepairReport(root, tuple(file.path for file in bad), check)


@dataclass(frozen=True, slots=True)
class _Repair:
    root: Path
    source: Any
    manifest: Manifest
    aside: Mapping[str, Any]
    moved: Moved
    bad: Sequence[PromisedFile]
    workers: int | None
    on_progress: OnProgress

    @property
    def staging(self) -> Path:
        return self.root / WORK / _STAGING

    def carry_out(self) -> None:
        """Make what is bad again and put it in place."""
        if read_manifest(self.root) != self.manifest:
            raise OutputError(f"{self.root}: another run has replaced it; check it again")
        shutil.rmtree(self.staging, ignore_errors=True)
        described = CONTAINERS[self.manifest.container].group_files(self.manifest)
        for name, data in described.items():
            if any(file.path == self.root / name for file in self.bad):
                self._put(name, data)
        if any(file.shard is not None or self._is_extra(file) for file in self.bad):
            recorded = Recorded(self.root, self.manifest, self.aside, self.moved)
            {"images": self._images, "tokens": self._tokens, "table": self._table}.get(
                self.manifest.kind, self._unknown
            )(recorded)

    def _is_extra(self, file: PromisedFile) -> bool:
        return file.path.relative_to(self.root).as_posix() in self.manifest.extras

    def _unknown(self, recorded: Recorded) -> None:  # noqa: ARG002
        raise OutputError(
            f"{self.root}: kind {self.manifest.kind!r} is none that can be repaired; prepare it "
            "again with --overwrite"
        )

    def _images(self, recorded: Recorded) -> None:
        chosen, options = recorded.image_options(), recorded.run_options(self.workers)
        plan = plan_images(Path(self.source), self.staging, chosen, options, recorded.limit)
        self._rewrite(self._in_runs(plan, options), options, self.on_progress)

    def _tokens(self, recorded: Recorded) -> None:
        chosen, options = recorded.token_options(), recorded.run_options(self.workers)
        plan = plan_tokens(Path(self.source), self.staging, chosen, options, recorded.limit)
        plan = self._in_runs(plan, options)
        self._expect_same(plan)  # before a first run over all documents
        run_tokens(plan, options, self.on_progress, self._rewrite)

    def _table(self, recorded: Recorded) -> None:
        request = recorded.table_request(self.source, self.staging)
        options = recorded.run_options(self.workers)
        refused = refused_before(self._skipped())
        with plan_table(request, options, refused=refused, expect=self._expect_table) as planned:
            self._expect_same(planned.plan)
            run_table(planned, options, self.on_progress, self._rewrite)

    def _expect_table(self, outline: Plan) -> None:
        """Refuse another source before what was asked of its columns is refused of those here."""
        known = replace(outline.listing, classes=self.manifest.classes)  # found when it is read
        self._expect_same(replace(outline, listing=known))

    def _skipped(self) -> dict[str, str]:
        """Return what the dataset lacks, and why."""
        return dict(read_skipped(self.root)) if self.manifest.skipped else {}

    def _in_runs(self, plan: Plan, options: RunOptions) -> Plan:
        """Return the plan with the shards of each run that has appended to the dataset."""
        runs = read_record(self.root / ITEMS)
        return plan if runs is None or len(runs) == 1 else as_recorded(plan, options, runs)

    def _expect_same(self, plan: Plan) -> None:
        """Refuse to go on with other options or another source than the dataset's."""
        beside = _BESIDE[self.manifest.kind]
        another_source = plan.listing.fingerprint() != self.manifest.source_hash
        if another_source and self.aside:  # else it may be the options that are others
            raise SourceError(
                f"{self.source}: not what {self.root} was made from: names or sizes differ, here "
                f"or in what {beside} says{self._named(plan)}; give all as it was, or prepare it "
                "again with --overwrite"
            )
        if another_source or plan.recipe_hash != self.manifest.recipe_hash:
            raise OutputError(
                f"{self.root}: what its options were is not known: {REPORT}, which says so, is not "
                f"the one of its run, or what {beside} says or this version of prep is another; "
                f"give {beside}, or prepare it again with --overwrite"
            )

    def _named(self, plan: Plan) -> str:
        """Name what differs of the items, as far as it is known."""
        runs = read_record(self.root / ITEMS)
        if runs is None:
            return f" (or it was appended to: {ITEMS}, which would say so, is missing)"
        names = compare_items(plan.listing, runs).names
        names = names or other_contents(plan, self.root, self.workers)
        return f" ({names})" if names else ""

    def _rewrite(self, plan: Plan, options: RunOptions, on_progress: OnProgress, /) -> Report:
        """Write the bad shards of a plan, compare them, and put them in place: a `Runner`."""
        self._expect_same(plan)
        wanted = {file.shard for file in self.bad}
        skipped = self._skipped()
        tasks = [
            leave_out(task, skipped) for task in plan.tasks() if (task.split, task.index) in wanted
        ]
        nbytes = sum(task.nbytes for task in tasks)
        check_room(self.root, nbytes)
        workers = options.worker_count()
        backend = plan.recipe.backend(plan.listing, workers)
        with saying_what_is_wanted(self.root, lambda: nbytes):
            (self.staging / WORK).mkdir(parents=True, exist_ok=True)
            receipts = write_shards(tasks, backend, workers, on_progress)
        others = chain.from_iterable(map(self._other_bytes, receipts))
        others = chain(others, self._other_extras(plan.extras))
        if (other := next(others, None)) is not None:
            keys = {item.key for task in tasks for item in task.items}
            raise SourceError(
                f"{self.source}: gives other bytes for {other} than {self.root} was made with: "
                f"{cause_and_remedy(plan, self.root, keys, workers)}"
            )
        for file in self.bad:
            name = file.path.relative_to(self.root).as_posix()
            if file.shard is not None:
                publish(self.staging / name, self._free(file.path))
                sync_directory(file.path.parent)
            elif name in plan.extras:
                self._put(name, plan.extras[name])
        return report_of(plan, options, self.manifest, ())

    def _other_bytes(self, receipt: Receipt) -> Iterator[str]:
        """Yield what a shard has otherwise than the dataset."""
        split = self.manifest.splits[receipt.split]
        if receipt.count != split.counts[receipt.index]:
            yield f"shard {receipt.index} of {receipt.split}"
        for column, (name, nbytes, crc32c) in receipt.files.items():
            files = split.files[column]
            if (nbytes, crc32c) != (files.nbytes[receipt.index], files.crc32c[receipt.index]):
                yield name

    def _other_extras(self, extras: Mapping[str, bytes]) -> Iterator[str]:
        """Yield the files beside the shards that are others than the dataset's."""
        for name, data in extras.items():
            if self.manifest.extras.get(name) != (len(data), crc32c_digits(data)):
                yield name

    def _put(self, name: str, data: bytes) -> None:
        write_atomically(self._free(self.root / name), data, work=self.root / WORK)

    def _free(self, path: Path) -> Path:
        """Make room for a file: what stands there and is none would not be replaced."""
        if path.is_dir() and not path.is_symlink():
            try:
                path.rmdir()
            except OSError as error:
                raise OutputError(
                    f"{path}: a folder with files in it, where a file belongs; move it"
                ) from error
        if not path.parent.resolve().is_relative_to(self.root.resolve()):
            raise OutputError(f"{path.parent}: leads out of {self.root} by a link; remove the link")
        return path
