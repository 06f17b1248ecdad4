"""Order as a pure function of seed and epoch."""

import numpy as np
from numpy.typing import NDArray


def epoch_order(count: int, *, shuffle: bool, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the order in which an epoch visits the samples.

    Args:
        count: Samples in the dataset.
        shuffle: False visits them as stored.
        seed: Any integer >= 0; with the epoch it fixes the order.
        epoch: Number of the epoch, from 0.

    Returns:
        [count] int64: a permutation of 0..count-1.

    Source:
        PCG64 seeded with (seed, epoch); O'Neill, "PCG: A Family of Simple Fast Space-Efficient
        Statistically Good Algorithms for Random Number Generation", 2014.
    """
    if not shuffle:
        return np.arange(count, dtype=np.int64)
    if seed < 0 or epoch < 0:
        raise ValueError(f"seed={seed}, epoch={epoch}: expected integers >= 0")
    generator = np.random.Generator(np.random.PCG64([seed, epoch]))
    return generator.permutation(count).astype(np.int64, copy=False)
