"""Files of tables that end or hold up the process that reads them: found out, left out by name.

Threads of one process read them, which all end with it. A note in the folder of the table says
which files were in work; the next run tries these in a process of their own.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from preprocess.fatal import Suspect, is_fatal, known_fatal, try_alone
from preprocess.in_work import read_notes
from preprocess.item_contents import ItemFiles
from preprocess.items import Item, Listing
from preprocess.tables.parts import Reading, files_of


def without_fatal_files(listing: Listing, reading: Reading, folder: Path, run: str) -> Reading:
    """Return a reading that leaves out what ended a process of this run before.

    Args:
        listing: The input.
        reading: How it is read; with a limit of time, all files are tried before.
        folder: Where the table lies between its steps.
        run: Hash of what the table follows from.

    Raises:
        OSError: What was found out cannot be written.
    """
    noted = {note.shard for note in read_notes(folder, run)}
    suspects = [
        Suspect(
            item=Item(file.key, 0, 0),
            work=partial(file.read_for_nothing, reading.options),
            load=_load,
        )
        for file in files_of(listing, reading, ItemFiles(listing.root, sums=False))
        if file.refused is None and (reading.item_timeout is not None or file.place in noted)
    ]
    with known_fatal(folder, run) as known:
        known.update(try_alone(suspects, known, reading.item_timeout))
    refused = {item.key: reason for item, reason in known.items()}
    return replace(reading, refused={**reading.refused, **refused})


def refused_before(skipped: Mapping[str, str]) -> dict[str, str]:
    """Return the files that a finished run has left out for that, of all that it left out."""
    return {key: reason for key, reason in skipped.items() if is_fatal(reason)}


def _load() -> None:
    """Load what reading needs, which is no file's fault."""
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401
