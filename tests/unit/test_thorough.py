"""The command for all that takes too long for every change: it runs what it says it runs."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import thorough


def test_it_runs_the_thorough_tests_the_kills_and_the_fuzzers_as_often_as_asked() -> None:
    tests, kills, fuzz, *guided = (words[1:] for words in thorough.commands(7, 80, 3))
    assert tests == ["-m", "pytest", "-m", "thorough", "-q"]
    assert kills == ["-m", "tests.kills", "--count", "7", "--seed", "3"]
    assert fuzz == ["-m", "tests.fuzz", "--count", "80", "--seed", "3"]
    if find_spec("atheris"):
        assert guided == [["-m", "tests.fuzz_guided", "--count", "80", "--seed", "3"]]


@pytest.mark.parametrize("module", ["tests.kills", "tests.fuzz", "tests.fuzz_guided"])
def test_the_commands_take_these_words(module: str) -> None:
    command = [sys.executable, "-m", module, "--count", "80", "--seed", "3", "--help"]
    shown = subprocess.run(
        command, cwd=thorough.ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "--count" in shown
    assert "--seed" in shown


def test_there_are_thorough_tests_of_crashes_power_cuts_and_flipped_bits() -> None:
    command = [*thorough.commands(7, 80, 3)[0], "--collect-only"]
    found = subprocess.run(
        [*command, "tests/crash", "tests/unit/preprocess/test_flipped_bits.py"],
        cwd=thorough.ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in ("test_stopped", "test_power_loss", "test_tokens_killed", "test_flipped_bits"):
        assert f"{name}.py" in found


def test_every_command_is_run_and_each_that_fails_is_named(tmp_path: Path) -> None:
    made = tmp_path / "made"
    fails = [sys.executable, "-c", "raise SystemExit(3)"]
    works = [sys.executable, "-c", f"open({str(made)!r}, 'w').close()"]
    (found,) = thorough.run_all([fails, works])
    assert found.startswith("exit code 3: ")
    assert made.exists()
    assert thorough.run_all([works]) == []


def test_the_exit_code_says_whether_anything_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["thorough"])
    for found, code in (([], False), (["exit code 1: x"], True)):
        monkeypatch.setattr(thorough, "run_all", lambda _, found=found: found)
        with pytest.raises(SystemExit) as ended:
            thorough.main()
        assert ended.value.code == code
