"""The same input and options give the same bytes: workers, place, language and time zone aside."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.children import ROOT, SECONDS
from tests.recipes import read_tree
from tests.small_datasets import KINDS, Made, prepare

CONTAINERS = ["tensor", "zarr"]

LANGUAGES = [
    "C",
    *(
        name
        for name in subprocess.run(
            ["locale", "-a"], capture_output=True, text=True, check=True
        ).stdout.split()
        if re.fullmatch(r"(C|tr_TR|de_DE)\.utf-?8", name, re.IGNORECASE)
    ),
]
"""Languages of this machine: of the first every character is a byte, in others "I" has another
small letter, or a comma stands in numbers."""

PREPARE = """
import locale, sys
from pathlib import Path
from tests.small_datasets import prepare
language, out, *made = sys.argv[1:]
assert locale.setlocale(locale.LC_ALL, "") == language, locale.setlocale(locale.LC_ALL)
for kind, container, source in zip(made[::3], made[1::3], made[2::3], strict=True):
    name = f"{kind} {container}"
    prepare(kind, container, Path(source), Path(out, name), "--limit", "15", "--workers", "2")
"""


def test_a_language_other_than_the_plainest_is_there() -> None:
    assert len(LANGUAGES) > 1


@pytest.fixture(scope="module", params=LANGUAGES)
def strange(
    request: pytest.FixtureRequest, made: Made, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a folder with a dataset of each kind, made by one process that lives elsewhere."""
    out = tmp_path_factory.mktemp("strange")
    language = request.param
    other = {"LC_ALL": language, "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "77"}
    words = [
        word
        for kind in KINDS
        for container in CONTAINERS
        for word in (kind, container, made(kind, container)[0])
    ]
    done = subprocess.run(
        [sys.executable, "-c", PREPARE, *map(str, [language, out, *words])],
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


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", KINDS)
def test_language_time_zone_and_hash_seed_change_no_byte(
    kind: str, container: str, made: Made, strange: Path
) -> None:
    assert read_tree(strange / f"{kind} {container}") == read_tree(made(kind, container)[1])
