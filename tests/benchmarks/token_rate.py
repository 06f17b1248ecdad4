"""How fast `prep tokens` is when everything is imported, and what the engine alone could do.

Contenders: our whole job from JSON lines and from Parquet; the same engine alone on the same texts,
in Arrow memory, its ids dropped: as we call it, from as many threads (the limit), from one thread,
and gigatoken in its package's own parallel call. The engines are those that `--engine auto`
chooses. Engines that remember words are made anew for each run.

Run: python -m tests.benchmarks.token_rate TEXT.jsonl TOKENIZER [--engine NAME]
"""

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from preprocess.item_contents import ItemFiles
from tests.benchmarks.inputs import empty
from tests.benchmarks.rounds import Runs, alternate, report, show

_PIECE_NBYTES: Final = 1 << 22
"""Text in one call of the engine: what the job itself gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured."""

    text: Path
    tokenizer: Path
    engine: str = "auto"
    workers: int = 2
    rounds: int = 5


def write_parquet(text: Path, path: Path) -> None:
    """Write the texts of JSON lines as Parquet, row groups of some MB, zstd."""
    import pyarrow.json
    import pyarrow.parquet

    options = pyarrow.json.ReadOptions(block_size=1 << 26)
    table = pyarrow.json.read_json(text, read_options=options).select(["text"])
    pyarrow.parquet.write_table(table, path, compression="zstd", row_group_size=4_000)


def read_texts(text: Path) -> list[Any]:
    """Read all texts into memory, as Arrow arrays of some MB."""
    from preprocess.texts.read import TextOptions, list_texts, read_documents

    options = TextOptions()
    listing = list_texts(text, options)
    return [
        documents.texts
        for item in listing.splits["train"]
        for documents in read_documents(ItemFiles(listing.root), item, options)
    ]


def _ours(setting: Setting, source: Path, out: Path, engine: str) -> None:
    from preprocess import RunOptions, TokenOptions, tokens_to_shards

    options = TokenOptions(tokenizer=str(setting.tokenizer), engine=engine)
    tokens_to_shards(source, out, options, RunOptions(workers=setting.workers))


def _engine_alone(setting: Setting, texts: list[Any], engine: str, threads: int) -> float:
    """Time the encoding alone, with an engine that has seen no text yet."""
    from preprocess.tokens.engines import open_engine
    from preprocess.tokens.tokenizer import TextTokenizer
    from preprocess.tokens.tokenizer_source import find_tokenizer

    tokenizer = TextTokenizer(find_tokenizer(str(setting.tokenizer)))
    opened = open_engine(engine, tokenizer)
    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda part: len(opened.encode(part)[0]), texts):
            pass
    return time.perf_counter() - begin


def _own_parallel_call(setting: Setting, texts: list[Any]) -> float:
    """Time gigatoken's own parallel call on all texts at once."""
    import awkward as ak
    import gigatoken
    import pyarrow as pa

    from preprocess.tokens.tokenizer import TextTokenizer
    from preprocess.tokens.tokenizer_source import find_tokenizer

    cleaned = TextTokenizer(find_tokenizer(str(setting.tokenizer))).cleaned
    backend = gigatoken.Tokenizer.from_json(cleaned).backend
    together = ak.from_arrow(pa.concat_arrays(texts))
    begin = time.perf_counter()
    backend.encode_batch(together)
    return time.perf_counter() - begin


def _run_only(setting: Setting, source: Path, out: Path, engine: str) -> float:
    """Time the run of a plan that is made: the comparison of engines is a fixed cost before it."""
    from preprocess import RunOptions, TokenOptions
    from preprocess.run import run
    from preprocess.tokens.prepare import plan_tokens

    options = TokenOptions(tokenizer=str(setting.tokenizer), engine=engine)
    chosen = RunOptions(workers=setting.workers)
    plan = plan_tokens(source, out, options, chosen)
    begin = time.perf_counter()
    run(plan, chosen)
    return time.perf_counter() - begin


def measure(setting: Setting, scratch: Path) -> tuple[Runs, int, str]:
    """Run the contenders in turns; give the runs, the bytes of text and the engine."""
    from preprocess import RunOptions, TokenOptions
    from preprocess.tokens.prepare import plan_tokens

    parquet, out = scratch / "text.parquet", scratch / "out"
    write_parquet(setting.text, parquet)
    texts = read_texts(setting.text)
    options = TokenOptions(tokenizer=str(setting.tokenizer), engine=setting.engine)
    plan = plan_tokens(setting.text, out, options, RunOptions(workers=setting.workers))
    engine = str(plan.recipe.facts()["engine"]["engine"])
    contenders = {
        "run from JSONL": partial(_run_only, setting, setting.text, out, engine),
        "run from Parquet": partial(_run_only, setting, parquet, out, engine),
        "JSONL, with the plan": partial(_ours, setting, setting.text, out, setting.engine),
        "engine alone": partial(_engine_alone, setting, texts, engine, setting.workers),
        "engine alone, one thread": partial(_engine_alone, setting, texts, engine, 1),
    }
    if engine == "gigatoken":
        contenders["engine's own parallel call"] = partial(_own_parallel_call, setting, texts)
    runs = alternate(contenders, setting.rounds, between=partial(empty, out))
    return runs, sum(part.nbytes for part in texts), engine


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="JSON lines with the key text")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    setting = Setting(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory() as scratch:
        runs, nbytes, engine = measure(setting, Path(scratch))
    title = f"{nbytes / 1e6:.0f} MB of text, {engine}, {setting.workers} workers"
    show(report(title, runs, count=nbytes // 10**6, unit="MB", reference="run from JSONL"))


if __name__ == "__main__":
    main()
