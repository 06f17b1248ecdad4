"""The same input and options give the same bytes: workers, place, language and time zone aside."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.children import ROOT, SECONDS
from tests.recipes import read_tree
from tests.small_datasets import KINDS, Made, prepare

CONTAINERS = ["tensor", "zarr"]

PREPARE = """
import sys
from pathlib import Path
from tests.small_datasets import prepare
out, *sources = sys.argv[1:]
for kind, source in zip(sources[::2], sources[1::2], strict=True):
    prepare(kind, "tensor", Path(source), Path(out, kind), "--limit", "15", "--workers", "2")
"""


@pytest.fixture(scope="module")
def strange(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a dataset of each kind, made by one process that lives elsewhere."""
    out = tmp_path_factory.mktemp("strange")
    other = {"LC_ALL": "C", "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "77", "LANG": "tr_TR"}
    words = [word for kind in KINDS for word in (kind, made(kind, "tensor")[0])]
    done = subprocess.run(
        [sys.executable, "-c", PREPARE, *map(str, [out, *words])],
        cwd=ROOT,
        env={**dict(os.environ), **other},  # noqa: TID251 - of the child, which is the test
        timeout=SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_workers_and_the_place_change_no_byte(
    kind: str, container: str, made: Made, tmp_path: Path
) -> None:
    source, out = made(kind, container)
    expected = read_tree(out)
    moved = Path(shutil.copytree(source.parent, tmp_path / "an other place é")) / source.name
    for workers in ("1", "2", "8"):
        again = tmp_path / workers
        prepare(kind, container, moved, again, "--limit", "15", "--workers", workers)
        assert read_tree(again) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_language_time_zone_and_hash_seed_change_no_byte(
    kind: str, made: Made, strange: Path
) -> None:
    assert read_tree(strange / kind) == read_tree(made(kind, "tensor")[1])
