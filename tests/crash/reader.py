"""Run by the crash tests in a process of its own: one that reads a dataset while others write.

    python -m tests.crash.reader KIND OUT

Maps all shards of OUT, and then answers each line of its input: "held" by digests of what its maps
hold, "fresh" by those of the dataset as it opens it anew, or why it cannot.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from loaders import (
    IncompleteError,
    MissingShardError,
    ShardsError,
    open_dataset,
    open_table,
    open_tokens,
)
from loaders.format.spec import read_manifest


def open_splits(kind: str, out: Path) -> dict[str, Any]:
    """Open every split of a dataset."""
    opened: dict[str, Any] = {}
    for split in read_manifest(out).splits:
        if kind == "images":
            opened[split] = open_dataset(out, split=split, size=24)
        else:
            is_table = kind == "table"
            opened[split] = open_table(out, split) if is_table else open_tokens(out, split)
            opened[split] = opened[split] if is_table else opened[split].documents()
    return opened


def digests(splits: dict[str, Any]) -> dict[str, str]:
    """Read all samples of all splits."""
    found = {}
    for split, data in splits.items():
        taken = hashlib.sha256()
        for name, values in sorted(dict(data.__getitems__(list(range(len(data))))).items()):
            array = values.numpy().tobytes() if hasattr(values, "numpy") else repr(values).encode()
            taken.update(name.encode() + array)
        found[split] = taken.hexdigest()
    return found


def fresh(kind: str, out: Path) -> dict[str, str]:
    """Open and read, or say why not."""
    try:
        return digests(open_splits(kind, out))
    except (IncompleteError, MissingShardError) as error:
        return {"nothing": str(error)}
    except ShardsError as error:
        return {"broken": str(error)}


if __name__ == "__main__":
    kind, folder = sys.argv[1], Path(sys.argv[2])
    held = open_splits(kind, folder)
    sys.stdout.write(f"{json.dumps(digests(held))}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        answer = digests(held) if line.strip() == "held" else fresh(kind, folder)
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()
