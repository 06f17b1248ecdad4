import subprocess
import sys
from pathlib import Path


def test_code_as_users_write_it_passes_strict_type_checking(tmp_path: Path) -> None:
    code = Path(__file__).with_name("user_code.py")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--cache-dir",
        str(tmp_path),
        str(code),
    ]
    # An editable install is found by an import hook, which mypy cannot follow: name the folder.
    place = {"MYPYPATH": str(code.parents[2]), "PATH": ""}
    done = subprocess.run(
        command, cwd=tmp_path, env=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
