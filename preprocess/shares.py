"""Shares of a whole that become other splits than train."""

from typing import Final

from preprocess.spelling import Option, OptionError

SPLIT_STEPS: Final = 10_000
"""Steps in which the share of a split is told apart."""


def check_shares(validation: float, test: float, seed: int) -> bool:
    """Say whether there are other splits than train.

    Raises:
        OptionError: A share is out of range, nothing is left for train, or a seed is for nothing.
    """
    shares = (validation, test)
    steps = [share * SPLIT_STEPS for share in shares if share != 0]
    if not all(1 <= step < SPLIT_STEPS for step in steps) or sum(steps) > SPLIT_STEPS - 1:
        raise OptionError(
            *(Option("validation"), ", ", Option("test"), f" = {shares}: expected 0, "),
            f"or shares of at least {1 / SPLIT_STEPS} that leave as much for train",
        )
    if seed and not steps:
        raise OptionError(Option("split_seed", seed), ": only with shares for other splits")
    return bool(steps)
