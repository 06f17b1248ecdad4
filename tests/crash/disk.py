"""A disk that loses its power: what a run gave it, call by call, and what may be left of that.

`Recorder` notes, in the process of a run, every call that changes a name or makes something
durable. `Disk` takes these notes one after the other, and says at any moment what is sure to be
there after a power cut and what may be there: of a file the bytes of its last fsync, of a folder
the names of its last fsync; whatever came later may be lost or not, name by name, and the bytes of
a file that was not synced may be any.

Source:
    POSIX, `fsync`; what file systems promise beyond it, and reorder, is in Pillai et al., "All File
    Systems Are Not Created Equal", OSDI 2014. A rename is one change of both folders here, as on
    every file system with a journal; all else may come in any order.
"""

import hashlib
import json
import os
import random
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Call = tuple[str, str, str]
"""What was done, to which path below the root, and the new path or the bytes' name, or ""."""

_WRITES = os.O_WRONLY | os.O_RDWR


class Recorder:
    """Notes what this process does to the files below a folder, from now to its end.

    Args:
        root: The folder.
        store: Gets the bytes of files when they are synced or get a name, named by their digest.
    """

    def __init__(self, root: Path, store: Path) -> None:
        self.calls: list[Call] = []
        self._root = os.path.join(os.path.realpath(root), "")
        self._store = store
        self._lock = threading.RLock()
        self._files = {name for name, data in read_names(root).items() if data is not None}
        os.fsync = os.fdatasync = self._sync
        for name in ("mkdir", "unlink", "remove", "rmdir"):
            setattr(os, name, self._noted("unlink" if name == "remove" else name))
        for name in ("rename", "replace"):
            setattr(os, name, self._renaming(getattr(os, name)))
        sys.addaudithook(self._look)

    def _below(self, path: Any, folder: int | None = None) -> str | None:
        """Return the path below the root, "" for the root; None for one outside."""
        if folder is not None:
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
        whole = os.path.join(os.path.abspath(os.fsdecode(path)), "")
        return whole.removeprefix(self._root)[:-1] if whole.startswith(self._root) else None

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or isinstance(arguments[0], int) or not arguments[2] & _WRITES:
            return
        if (name := self._below(arguments[0])) is not None:
            with self._lock:
                self.calls.append(("open", name, ""))
                self._files.add(name)

    def _noted(self, call: str) -> Callable[..., None]:
        right = getattr(os, call)

        def made(path: Any, *more: Any, dir_fd: int | None = None, **options: Any) -> None:
            with self._lock:
                name = self._below(path, dir_fd)
                right(path, *more, dir_fd=dir_fd, **options)
                if name is not None:
                    self.calls.append((call, name, ""))

        return made

    def _renaming(self, right: Callable[..., None]) -> Callable[..., None]:
        def renamed(source: Any, target: Any) -> None:
            with self._lock:
                old, new = self._below(source), self._below(target)
                if old is not None and not os.path.isdir(source):
                    self.calls.append(("hold", old, self._keep(source)))
                right(source, target)
                if (old is None) != (new is None):
                    raise RuntimeError(f"{source}, {target}: a rename across the root")
                if old is not None and new is not None:
                    self.calls.append(("rename", old, new))

        return renamed

    def _sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        place = f"/proc/self/fd/{descriptor}"
        with self._lock:
            name = self._below(os.readlink(place))
            if name is None or not status.st_nlink:
                return
            if stat.S_ISDIR(status.st_mode):
                self.calls.append(("sync folder", name, ""))
            else:
                self.calls.append(("sync", name, self._keep(place)))

    def _keep(self, path: Any) -> str:
        with open(path, "rb") as file:
            return keep(self._store, file.read())


def keep(store: Path, data: bytes) -> str:
    """Put bytes into the store; return their name there."""
    name = hashlib.sha256(data).hexdigest()
    (store / name).write_bytes(data)
    return name


def read_names(root: Path) -> dict[str, bytes | None]:
    """Return every file below a folder with its bytes, and every folder with None."""
    return {
        path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


@dataclass(eq=False, slots=True)
class Node:
    """A file or folder, whatever its name.

    Attributes:
        is_folder: What it is.
        synced: Name of the bytes of its last fsync; "" before the first.
        held: Name of the bytes that it was known to hold last.
        is_open: Whether it was opened to be written after that.
    """

    is_folder: bool
    synced: str = ""
    held: str = ""
    is_open: bool = False


Place = tuple[Node, str]
"""A folder, and a name in it."""

Change = dict[Place, Node | None]
"""Names that are given or taken in one step."""


@dataclass(slots=True)
class Disk:
    """What a process sees of a disk, and what is sure to be on it.

    Attributes:
        root: The folder that all else is in.
        seen: Every name that there is for the process.
        sure: Every name that a power cut leaves.
        pending: The changes between the two, in their order.
    """

    root: Node = field(default_factory=lambda: Node(is_folder=True))
    seen: dict[Place, Node] = field(default_factory=dict)
    sure: dict[Place, Node] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    @classmethod
    def holding(cls, names: dict[str, bytes | None], store: Path) -> "Disk":
        """Return a disk on which some files have long been."""
        disk = cls()
        for name, data in names.items():  # folders come before what is in them
            digest = "" if data is None else keep(store, data)
            disk.seen[disk.place(name)] = Node(data is None, digest, digest)
        disk.sure = dict(disk.seen)
        return disk

    def place(self, name: str) -> Place:
        """Return where a name stands, for the process."""
        folder = self.root
        *parents, last = name.split("/")
        for parent in parents:
            folder = self.seen[folder, parent]
        return folder, last

    def take(self, call: Call) -> None:
        """Do what the process has done."""
        what, name, more = call
        place = self.place(name) if name else (self.root, "")
        node = self.seen.get(place, self.root)
        if what == "open":
            if place not in self.seen:
                self._change({place: Node(is_folder=False)})
            self.seen[place].is_open = True
        elif what == "mkdir":
            self._change({place: Node(is_folder=True)})
        elif what in {"unlink", "rmdir"}:
            self._change({place: None})
        elif what == "rename":
            self._change({place: None, self.place(more): node})
        elif what == "hold":
            node.held = more
        elif what == "sync":
            node.synced = node.held = more
            node.is_open = False
        else:
            self._settle(node)

    def _change(self, change: Change) -> None:
        self.pending.append(change)
        _put(self.seen, change)

    def _settle(self, folder: Node) -> None:
        """Make all names of a folder durable."""
        touching = [any(place[0] is folder for place in change) for change in self.pending]
        durable = _with_earlier(self.pending, touching)
        for change in (c for c, now in zip(self.pending, durable, strict=True) if now):
            _put(self.sure, change)
        self.pending = [c for c, now in zip(self.pending, durable, strict=True) if not now]

    def paths(self, names: dict[Place, Node]) -> Iterator[tuple[str, Node]]:
        """Yield every path that leads from the root, folders first."""
        waiting = [("", self.root)]
        while waiting:
            above, folder = waiting.pop()
            for (parent, name), node in names.items():
                if parent is folder:
                    yield f"{above}{name}", node
                    if node.is_folder:
                        waiting.append((f"{above}{name}/", node))

    def lose_power(self, share: float, rng: random.Random, store: Path, root: Path) -> None:
        """Write to an empty folder what may be left.

        Args:
            share: Of the names that are not durable, how many are there all the same.
            rng: Chooses which, and what is in files that were not synced.
            store: Where bytes are.
            root: The folder.
        """
        left = dict(self.sure)
        chosen = [rng.random() < share for _ in self.pending]
        chosen = _with_earlier(self.pending, chosen)
        for change in (c for c, there in zip(self.pending, chosen, strict=True) if there):
            _put(left, change)
        for name, node in self.paths(left):
            if node.is_folder:
                (root / name).mkdir()
            else:
                (root / name).write_bytes(_bytes_of(node, rng, store))


def _put(names: dict[Place, Node], change: Change) -> None:
    for place, node in change.items():
        if node is None:
            names.pop(place, None)
        else:
            names[place] = node


def _with_earlier(changes: list[Change], chosen: list[bool]) -> list[bool]:
    """Choose also every earlier change of the same name: of one name, the last change stands."""
    names: set[Place] = set()
    found = []
    for change, taken in zip(reversed(changes), reversed(chosen), strict=True):
        found.append(taken or not names.isdisjoint(change))
        if found[-1]:
            names.update(change)
    return found[::-1]


def _bytes_of(node: Node, rng: random.Random, store: Path) -> bytes:
    synced = (store / node.synced).read_bytes() if node.synced else b""
    if node.synced == node.held and node.synced and not node.is_open:
        return synced
    held = (store / node.held).read_bytes() if node.held else b""
    length = rng.choice([len(held), rng.randrange(200)])
    return rng.choice([synced, held[: rng.randrange(len(held) + 1)], bytes(length),
                       rng.randbytes(length)])  # fmt: skip


def read_calls(path: Path) -> list[Call]:
    """Read what `write_calls` wrote."""
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


def write_calls(path: Path, calls: list[Call]) -> None:
    """Write notes for another process."""
    path.write_text("".join(f"{json.dumps(call)}\n" for call in calls))
