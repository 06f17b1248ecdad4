"""One shard to be written: all that a worker needs to know, and what is known once it is done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from loaders.errors import FormatError, MissingShardError
from loaders.format.containers import CONTAINERS
from loaders.format.fields import FieldSpec
from loaders.format.files import WORK
from loaders.format.spec import Container
from preprocess.errors import output_error
from preprocess.items import Item
from preprocess.receipt import REMEDY, Receipt, parse_receipt
from preprocess.recipe import Recipe

OWNER: Final = "owner"
"""Name of the file in the work folder that holds the name of the claim in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """All that a worker needs to write one shard, wherever it runs.

    Attributes:
        source: The folder that the items lie in.
        out: The dataset's folder.
        container: How the bytes are laid out.
        split: The split's name.
        index: The shard's number in the split.
        capacity: Rows of a full shard in this split; None where an item is not one sample.
        items: The items of this shard, in order.
        recipe: Turns them into samples.
        class_count: Labels are below it.
        run_hash: Stands in the receipt; a receipt of another run is not taken.
        owner: The claim on the folder that this task works for; "" to work for none.
        threads: Threads to prepare samples on, in a process of its own.
        refused: Items that are left out, and why: they ended or held up a process.
    """

    source: Path
    out: Path
    container: Container
    split: str
    index: int
    capacity: int | None
    items: tuple[Item, ...]
    recipe: Recipe
    class_count: int
    run_hash: str
    owner: str = ""
    threads: int = 1
    refused: Mapping[Item, str] = field(default_factory=dict)

    @property
    def receipt_path(self) -> Path:
        """Where the receipt of this shard lies while the run has not finished."""
        return self.out / WORK / f"{self.split}.{self.index:05d}.receipt.json"

    @property
    def nbytes(self) -> int:
        """Bytes that the shard's files will have if no item is skipped but for its size.

        An estimate where an item is not one sample of so many bytes.
        """
        container = CONTAINERS[self.container]
        items = [item for item in self.items if self.recipe.too_large(item) is None]
        if not items:
            return 0
        if self.is_estimated:
            return round(sum(self.recipe.predicted_nbytes(item) for item in items))
        return sum(container.shard_nbytes(c, len(items), self.capacity) for c in self.columns())

    @property
    def is_estimated(self) -> bool:
        """Whether those bytes are an estimate."""
        return self.capacity is None or any(column.in_chunks for column in self.columns())

    def columns(self) -> list[FieldSpec]:
        """Return what is stored, one file each."""
        return [column for field in self.recipe.fields() for column in field.columns()]

    def is_owned(self) -> bool:
        """Return whether the run that this task works for still holds the folder."""
        if not self.owner:
            return True
        try:
            return (self.out / WORK / OWNER).read_text() == self.owner
        except FileNotFoundError:
            return False

    def shard_path(self, column: FieldSpec) -> Path:
        """Return where the file of a column will lie."""
        container = CONTAINERS[self.container]
        return container.shard_path(self.out, self.split, self.index, column, self.capacity)


def retract(task: ShardTask) -> None:
    """Remove what an earlier try at a shard left: its files, then its receipt."""
    try:
        for column in task.columns():
            task.shard_path(column).unlink(missing_ok=True)
        task.receipt_path.unlink(missing_ok=True)
    except OSError as error:
        raise output_error(task.out, error) from error


def read_receipt(task: ShardTask) -> Receipt | None:
    """Return the receipt of a shard that this run has finished already, if its files are there.

    Raises:
        FormatError: The receipt is damaged.
    """
    try:
        receipt = parse_receipt(task.receipt_path)
    except MissingShardError:
        return None
    if receipt.run_hash != task.run_hash or receipt.items != len(task.items):
        return None
    if len(receipt.contents) not in {0, receipt.items}:
        raise FormatError(f"{task.receipt_path}: contents of other items than its own; {REMEDY}")
    if task.capacity is not None and receipt.count > receipt.items:
        raise FormatError(f"{task.receipt_path}: more samples than items; {REMEDY}")
    paths = {column.name: task.shard_path(column) for column in task.columns()}
    named = {name: task.out / below for name, (below, _, _) in receipt.files.items()}
    if named != (paths if receipt.count else {}):
        raise FormatError(f"{task.receipt_path}: names other files than its shard's; {REMEDY}")
    for name, nbytes, _ in receipt.files.values():
        path = task.out / name
        if not path.is_file() or path.stat().st_size != nbytes:
            return None
    return receipt
