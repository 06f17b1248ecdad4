"""How many of the processes that train together share this machine, and its processors.

Source:
    LOCAL_WORLD_SIZE: docs.pytorch.org, "torchrun (Elastic Launch)", "Environment Variables": what
    torchrun tells each process of its own machine; torch.distributed itself does not know.
"""

import os
from functools import lru_cache
from typing import Final

import torch

from loaders.ahead import usable_processors
from loaders.errors import SelectionError
from loaders.sampling import chosen_ranks

_TOLD: Final = "LOCAL_WORLD_SIZE"


def local_ranks(world_size: int | None = None) -> int:
    """Return how many ranks are on this machine, this one among them.

    As many as torchrun says. Started otherwise, as many as there are CUDA devices, one for each;
    without these all of them.

    Args:
        world_size: All ranks; None for as many as torch.distributed has, or the launcher.

    Raises:
        SelectionError: What the launcher says is no number.
    """
    told = os.environ.get(_TOLD)  # noqa: TID251 - the launcher's word, which has no other way
    if told is not None:
        if not told.isdecimal() or int(told) < 1:
            raise SelectionError(f"{_TOLD}={told!r}: expected an integer of at least 1")
        return int(told) if world_size is None else min(int(told), world_size)
    if world_size is None:
        _, world_size = chosen_ranks(None, None)
    return world_size if world_size == 1 else min(world_size, _devices() or world_size)


def own_processors(world_size: int | None = None) -> int:
    """Return how many processors are this rank's share of those that it may run on."""
    return max(1, usable_processors() // local_ranks(world_size))


@lru_cache(maxsize=1)
def _devices() -> int:
    return torch.cuda.device_count()
