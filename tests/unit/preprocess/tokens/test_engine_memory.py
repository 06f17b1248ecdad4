"""What engines keep in memory of the words that they have met."""

import subprocess
import sys

import pytest

from tests.tokenizers_made import make_bpe, make_wordpiece

MEASURE = """
import sys
import numpy as np, pyarrow as pa
from preprocess.tokens.engine_packages import LOADERS, own_nbytes
from preprocess.tokens.tokenizer import TextTokenizer
from preprocess.tokens.tokenizer_source import find_tokenizer
encode = LOADERS[sys.argv[1]](TextTokenizer(find_tokenizer(sys.argv[2])).cleaned)
random, before = np.random.default_rng(3), own_nbytes()
for _ in range(24):
    letters = random.integers(97, 123, 2_000_000, dtype=np.uint8)
    letters[::8] = 32  # 250,000 words, hardly one of which comes twice
    ids, counts = encode(pa.array([letters.tobytes().decode()], pa.large_string()))
    assert counts.tolist() == [len(ids)]
print(own_nbytes() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "make"),
    [("gigatoken", make_bpe), ("fastokens", make_bpe), ("nanotoken", make_wordpiece)],
)
def test_words_that_never_come_twice_fill_no_memory(engine, make, tmp_path) -> None:
    pytest.importorskip(engine)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, engine, str(make(tmp_path))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 400_000_000  # gigatoken alone would keep 600 MB
