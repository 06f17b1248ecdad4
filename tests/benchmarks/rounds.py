"""Comparison on a noisy machine: contenders take turns, each run is kept, ratios are paired."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Runs = dict[str, list[float]]


def alternate(
    contenders: Mapping[str, Callable[[], float | None]],
    rounds: int,
    between: Callable[[], object] = gc.collect,
) -> Runs:
    """Time every contender once a round, each round starting with another one.

    Every other round goes backwards, so that none always follows the same one.

    Args:
        contenders: Calls by name. A call that returns a number has timed itself (in seconds).
        rounds: How many rounds.
        between: Runs before each call, outside the timing.

    Returns:
        Seconds by name, in the order of the rounds.
    """
    names = list(contenders)
    runs: Runs = {name: [] for name in names}
    for number in range(rounds):
        start = number % len(names)
        order = names[::-1] if number % 2 else names
        for name in order[start:] + order[:start]:
            between()
            begin = time.perf_counter()
            own_seconds = contenders[name]()
            runs[name].append(own_seconds or time.perf_counter() - begin)
    return runs


def paired_ratios(runs: Runs, name: str, reference: str) -> list[float]:
    """Divide each round's seconds of `name` by those of `reference`: above 1, it took longer."""
    return [a / b for a, b in zip(runs[name], runs[reference], strict=True)]


def report(title: str, runs: Runs, *, count: int, unit: str, reference: str) -> list[str]:
    """Write every run, medians, and ratios with their range, as lines of text.

    Args:
        title: First line.
        runs: From `alternate`.
        count: Things done in one run; the rate is count / seconds.
        unit: What is counted.
        reference: The contender that the others are compared with.
    """
    width = max(map(len, runs))
    lines = [title]
    for name, seconds in runs.items():
        rate = count / statistics.median(seconds)
        ratios = paired_ratios(runs, name, reference)
        shown = " ".join(f"{value:.3f}" for value in seconds)
        lines.append(
            f"  {name:{width}}  {rate:9.1f} {unit}/s  "
            f"time / {reference}: {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})  seconds: {shown}"
        )
    return lines


def show(lines: Sequence[str]) -> None:
    """Print lines at once, so that a long benchmark can be followed."""
    print("\n".join(lines), flush=True)
