"""A process that imports transformers and loads a tokenizer while the command goes on.

Both hold the interpreter's lock for longer than all else takes before the first document. Nothing
heavy is imported here: the process is started first of all.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from preprocess.interrupts import interrupts_ignored

if TYPE_CHECKING:
    from preprocess.tokens.tokenizer_source import TokenizerSource

Process = subprocess.Popen[bytes]

MARK: Final = b"\0prep\0"
"""Begins what the process says of the tokenizer."""

_CODE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from preprocess.tokens.loader import main; main()"
)


@contextmanager
def loader_started(*, wanted: bool = True) -> Iterator[Process | None]:
    """Start a process that will load a tokenizer, and ends with the context.

    Args:
        wanted: Not where transformers is needed in this process, whose chat templates it renders,
            nor where the tokenizer is there already.

    Yields:
        The process, for `ask`; None if it is not wanted, or this process loads as fast.
    """
    if not wanted or "transformers" in sys.modules or not sys.executable:
        yield None
        return
    flags = [f"-W{option}" for option in sys.warnoptions]
    # -P: nothing is imported from the folder that the command was given in.
    entries: list[object] = [*sys.path]  # Python passes over what is no string, and so do we
    places = json.dumps([entry for entry in entries if isinstance(entry, str)])
    command = [sys.executable, "-P", *flags, "-c", _CODE, places]
    pipe = subprocess.PIPE
    with interrupts_ignored():  # it is ended here, and must not write of a Ctrl-C
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe)  # noqa: S603 # our own code
    with process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: Process, source: "TokenizerSource") -> None:
    """Tell the process which tokenizer it is to load."""
    described = json.dumps({**asdict(source), "path": str(source.path)})
    try:
        if process.stdin is not None:
            process.stdin.write(described.encode())
            process.stdin.close()
    except BrokenPipeError:
        pass  # it has ended: `answer` says so


def answer(process: Process) -> dict[str, Any] | None:
    """Wait for what the process says of the tokenizer.

    Returns:
        "error", or "named", "whole" and "content" as `loading.Given` has them; None if the process
        has ended without a word.
    """
    data = b"" if process.stdout is None else process.stdout.read()
    process.wait()
    _, mark, told = data.rpartition(MARK)  # Python prints before our code if its set-up does
    return json.loads(told) if process.returncode == 0 and mark else None


def leave_out_torch() -> None:
    """Have transformers find no torch in this process: it would import it, and use it for models.

    That import is 1.2 s and 100 MB of a command that has no model.
    """
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type] # how Python marks what is absent
    logging.getLogger("transformers").addFilter(lambda record: "PyTorch" not in str(record.msg))
