"""How fast `prep table` is when everything is imported, and what reading alone could do.

The table is generated: 13 columns of whole numbers of which a fifth is missing, and 26 of words
that are as frequent as those of a language. Contenders: our whole job from CSV and from Parquet,
to shards with all that belongs to them; reading alone by pyarrow with as many threads, once with
`dictionary_encode` of the texts and once into dictionaries at once, whose result is dropped and
whose codes are those of each chunk alone; and with `--pandas-python` the same CSV by pandas' C
engine, `factorize`, and torch tensors, in a Python of its own that times itself without imports.

Run: python -m tests.benchmarks.table_rate [--pandas-python PYTHON] [--memory]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.benchmarks.inputs import empty
from tests.benchmarks.memory import peak_nbytes
from tests.benchmarks.rounds import Runs, alternate, paired_ratios, report, show

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

FROM_CSV: Final = "prep table from CSV"
FROM_PARQUET: Final = "prep table from Parquet"
CSV_ALONE: Final = "CSV parse + dictionary_encode"
CSV_DICTIONARIES: Final = "CSV parse into dictionaries"
PARQUET_ALONE: Final = "Parquet read + dictionary_encode"
PARQUET_DICTIONARIES: Final = "Parquet read as dictionaries"
PANDAS: Final = "pandas, CSV"

_INTEGERS: Final = 13
_WORDS: Final = 26
_MISSING: Final = 0.2
_PART: Final = 100_000
"""Rows that are generated at a time."""

_PANDAS: Final = """
import sys, time
import numpy as np, pandas as pd, torch
torch.set_num_threads(int(sys.argv[2]))
begin = time.perf_counter()
frame = pd.read_csv(sys.argv[1], engine="c")
tensors = {}
for name in frame.columns:
    column = frame[name]
    if column.dtype.kind in "if":
        tensors[name] = torch.from_numpy(column.to_numpy(np.float32))
    else:
        codes, _ = pd.factorize(column)
        tensors[name] = torch.from_numpy(codes.astype(np.int64))
print(time.perf_counter() - begin)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured."""

    count: int = 1_000_000
    workers: int = 2
    rounds: int = 5
    pandas_python: Path | None = None


def write_inputs(scratch: Path, count: int) -> tuple[Path, Path]:
    """Write the same rows as CSV and as Parquet, part by part; give both."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    csv, parquet = scratch / "table.csv", scratch / "table.parquet"
    words = [pa.array([_word(number) for number in range(10 ** (1 + n))]) for n in range(5)]
    schema = pa.schema(
        [(f"i{n}", pa.int64()) for n in range(_INTEGERS)]
        + [(f"c{n}", pa.string()) for n in range(_WORDS)]
    )
    with (
        pyarrow.csv.CSVWriter(
            csv, schema, write_options=pyarrow.csv.WriteOptions(quoting_style="none")
        ) as to_csv,
        pyarrow.parquet.ParquetWriter(parquet, schema) as to_parquet,
    ):
        for start in range(0, count, _PART):
            rows = min(_PART, count - start)
            columns = [
                pa.array(
                    rng.lognormal(4 + number % 4, 2, rows).astype(np.int64),
                    mask=rng.random(rows) < _MISSING,
                )
                for number in range(_INTEGERS)
            ]
            for number in range(_WORDS):
                known = words[number % len(words)]
                columns.append(known.take(pa.array(rng.zipf(1.3, rows) % len(known))))
            part = pa.table(columns, schema=schema)
            to_csv.write_table(part)
            to_parquet.write_table(part)
    return csv, parquet


def _word(number: int) -> str:
    """Return one of 2**28 words of seven letters and digits."""
    return f"{number * 2654435761 % (1 << 28):07x}"


def _ours(setting: Setting, source: Path, out: Path) -> None:
    from preprocess import RunOptions
    from preprocess.tables.prepare import table_to_shards

    table_to_shards(source, out, run_options=RunOptions(workers=setting.workers))


def _read_csv(csv: Path, *, as_dictionaries: bool) -> None:
    import pyarrow as pa
    import pyarrow.csv

    kind = pa.dictionary(pa.int32(), pa.string())
    types = {f"c{number}": kind for number in range(_WORDS)} if as_dictionaries else None
    options = pyarrow.csv.ConvertOptions(column_types=types)
    _encode(pyarrow.csv.read_csv(csv, convert_options=options))


def _read_parquet(parquet: Path, *, as_dictionaries: bool) -> None:
    import pyarrow.parquet

    names = [f"c{number}" for number in range(_WORDS)] if as_dictionaries else None
    _encode(pyarrow.parquet.read_table(parquet, read_dictionary=names))


def _encode(table: "pa.Table") -> None:
    """Encode the texts, a column to a thread, unless they are dictionaries already."""
    import pyarrow as pa

    def encode(name: str) -> None:
        column = table.column(name)
        if pa.types.is_string(column.type):
            column.dictionary_encode()

    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        for _ in pool.map(encode, table.column_names):
            pass


def _pandas(setting: Setting, csv: Path) -> float:
    command = [str(setting.pandas_python), "-c", _PANDAS, str(csv), str(setting.workers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{setting.pandas_python}: exit code {done.returncode}\n{done.stderr}")
    return float(done.stdout)


def measure(setting: Setting, scratch: Path) -> Runs:
    """Run the contenders in turns, everything imported and in the page cache."""
    import pyarrow as pa

    csv, parquet = write_inputs(scratch, setting.count)
    out = scratch / "out"
    threads = pa.cpu_count()
    contenders: dict[str, Callable[[], float | None]] = {
        FROM_CSV: partial(_ours, setting, csv, out),
        FROM_PARQUET: partial(_ours, setting, parquet, out),
        CSV_ALONE: partial(_read_csv, csv, as_dictionaries=False),
        CSV_DICTIONARIES: partial(_read_csv, csv, as_dictionaries=True),
        PARQUET_ALONE: partial(_read_parquet, parquet, as_dictionaries=False),
        PARQUET_DICTIONARIES: partial(_read_parquet, parquet, as_dictionaries=True),
    }
    if setting.pandas_python is not None:
        contenders[PANDAS] = partial(_pandas, setting, csv)
    pa.set_cpu_count(setting.workers)
    try:
        alternate(contenders, 1, between=partial(empty, out))  # imports, and the page cache
        return alternate(contenders, setting.rounds, between=partial(empty, out))
    finally:
        pa.set_cpu_count(threads)


def shares(runs: Runs) -> list[str]:
    """Say what our rate is as a share of the others'."""
    pairs = [
        (FROM_CSV, CSV_ALONE),
        (FROM_CSV, CSV_DICTIONARIES),
        (FROM_CSV, PANDAS),
        (FROM_PARQUET, PARQUET_ALONE),
        (FROM_PARQUET, PARQUET_DICTIONARIES),
    ]
    lines = []
    for ours, other in pairs:
        if other in runs:
            ratios = paired_ratios(runs, other, ours)
            middle = statistics.median(ratios)
            lines.append(
                f"  {ours}: {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of the rate of "
                f"{other}"
            )
    return lines


def peak_memory(source: Path, out: Path, workers: int) -> int:
    """Return the peak of anonymous memory of a whole `prep table`."""
    script = "from preprocess.cli import main; main()"
    options = ("--workers", str(workers))
    command = [sys.executable, "-c", script, "table", str(source), str(out), *options]
    peak = peak_nbytes(command)
    empty(out)
    return peak


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pandas-python", type=Path, help="with pandas and torch")
    parser.add_argument("--memory", action="store_true", help="measure the peak memory instead")
    chosen = vars(parser.parse_args())
    memory = chosen.pop("memory")
    setting = Setting(**chosen)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if memory:
            for source in write_inputs(scratch, setting.count):
                peak = peak_memory(source, scratch / "out", setting.workers)
                show([f"{setting.count} rows, {source.name}: {peak / 1e6:.0f} MB anonymous memory"])
            return
        runs = measure(setting, scratch)
    title = f"{setting.count} rows of 39 columns, {setting.workers} workers"
    show(report(title, runs, count=setting.count, unit="rows", reference=FROM_CSV))
    show(shares(runs))


if __name__ == "__main__":
    main()
