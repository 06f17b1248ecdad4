"""How much memory a process may still take: of the host, as its control groups allow, and of a GPU.

A container's limit is not in /proc/meminfo: a program that trusts the machine's free memory there
is killed at the limit of its group, without a word.

Source:
    Linux: Documentation/filesystems/proc.rst (MemAvailable), admin-guide/cgroup-v2.rst
    (memory.max, memory.current, memory.stat), cgroup-v1/memory.rst.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import torch

_V1: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
_V2: Final = ("memory.max", "memory.current", "")
"""Files with the limit and what is in use, and how the entries of memory.stat begin."""

_FILE_PAGES: Final = ("inactive_file", "active_file")
"""Page cache, which counts as in use and which the kernel gives up when memory is asked for."""


def free_ram(root: Path = Path("/")) -> int:
    """Return the bytes of RAM that can still be used, the page cache counted as free.

    The least of what the machine and each control group around this process have left.

    Args:
        root: Where proc and sys lie.
    """
    machine = _meminfo(root / "proc/meminfo")
    return max(0, min([machine, *_groups(root)]))


def free_device_memory(device: torch.device) -> int:
    """Return the bytes of a CUDA device that nobody has taken."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free)


def _meminfo(path: Path) -> int:
    entries = _entries(path, ":")
    if "MemAvailable" in entries:
        return entries["MemAvailable"] << 10  # it says kB and means KiB
    # Elsewhere than on Linux nothing says what is free: half of what there is.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _groups(root: Path) -> Iterator[int]:
    """Yield what is left of each limited group, from that of the process to the root."""
    mounts = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            base, names = mounts, _V2
        elif "memory" in controllers.split(","):
            base, names = mounts / "memory", _V1
        else:
            continue
        # In a container the path may be the host's, of which only the top is mounted.
        own = base / path.strip("/")
        for folder in (own, *own.parents):
            yield from _left(folder, *names)
            if folder == base:
                break


def _left(folder: Path, limit: str, usage: str, prefix: str) -> Iterator[int]:
    most, used = _number(folder / limit), _number(folder / usage)
    if most is None or used is None:  # "max", or no such group here
        return
    stat = _entries(folder / "memory.stat", " ")
    yield most - used + sum(stat.get(prefix + name, 0) for name in _FILE_PAGES)


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _entries(path: Path, separator: str) -> Mapping[str, int]:
    found = {}
    for line in _lines(path):
        name, _, value = line.partition(separator)
        number = value.split()[:1]
        if number and number[0].isdigit():
            found[name] = int(number[0])
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # no such group, or no such system
        return []
