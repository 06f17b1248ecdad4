"""The benchmark of several GPUs works: two tiny ranks on the CPU, and none judges a time."""

from pathlib import Path

import pytest
import torch

from tests.benchmarks import device_ddp
from tests.benchmarks.device_setting import tiny
from tests.process_groups import run_group

_RANK = """
from pathlib import Path
from tests.benchmarks import device_ddp
from tests.benchmarks.device_setting import tiny

scratch, out = arguments
setting = tiny(torch.device("cpu"))
lines = device_ddp.measure(setting, Path(scratch), int(rank), int(world))
Path(out).write_text("".join(line + chr(10) for line in lines))
"""


@pytest.mark.slow
def test_two_ranks_check_and_measure_every_residency(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    outs = [tmp_path / f"{rank}.txt" for rank in range(2)]
    run_group(tmp_path, _RANK, 2, [[str(scratch), str(out)] for out in outs])
    lines = outs[0].read_text().splitlines()
    print(*lines, sep="\n")
    assert outs[1].read_text().splitlines() == lines
    assert sum("each once" in line for line in lines) == 4
    assert sum("2 together" in line for line in lines) == 3


@pytest.mark.slow
def test_one_rank_needs_no_group(tmp_path: Path) -> None:
    lines = list(device_ddp.measure(tiny(torch.device("cpu")), tmp_path))
    assert sum("1 ranks" in line and "each once" in line for line in lines) == 4
    assert sum(line.startswith("ResNet-50") for line in lines) == 3
