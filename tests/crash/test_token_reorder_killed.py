"""Documents that are put in order in two runs: killed anywhere, the same command finishes."""

import json
from pathlib import Path

import pytest

from tests.crash.children import output_of
from tests.tokenizers_made import LINES, make_bpe


@pytest.mark.parametrize("mode", [[], ["overwrite"]], ids=["new", "overwriting"])
@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_run_in_two_passes_that_is_killed_at_any_call_is_finished_by_the_same_command(
    stride: int, mode: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, lines in (("a", LINES[:20]), ("b", LINES[10:40])):
        text = "".join(json.dumps({"text": line}) + "\n" for line in lines)
        (source / f"{name}.jsonl").write_text(f"{text}not JSON\n", encoding="utf-8")
    tokenizer = make_bpe(tmp_path / "bpe")

    assert int(output_of("token_bomb", stride, tokenizer, source, tmp_path, *mode)) > 150
