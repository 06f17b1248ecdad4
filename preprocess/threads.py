"""What the shards that are written by threads of one process share."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from types import TracebackType


class Stopped(Exception):  # noqa: N818
    """The run is ending early; the shard in work is dropped."""


class Gate:
    """Lets shards in until the run ends early, and knows when the last one is out.

    joblib leaves its threads running when one of them fails; what they still write must not
    outlive the run's hold on the output folder.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self.is_shut = False

    def __enter__(self) -> None:
        with self._changed:
            if self.is_shut:
                raise Stopped
            self._inside += 1

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def shut(self) -> None:
        """Let nobody in any more, and wait until the last is out."""
        with self._changed:
            self.is_shut = True
            self._changed.wait_for(lambda: self._inside == 0)


@dataclass(frozen=True, slots=True)
class Shared:
    """What shards in threads of one process share; worker processes have none.

    Attributes:
        pool: Threads that prepare samples.
        threads: How many there are.
        gate: Shut when the run ends early.
        turn: Held by shards that hand samples to the pool; the others wait, or finish.
        on_chunk: Told (samples, skipped, bytes) as they are made.
    """

    pool: Executor
    threads: int
    gate: Gate
    turn: threading.Semaphore
    on_chunk: Callable[[int, int, int], None]
