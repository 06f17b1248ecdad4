"""Which stored samples a dataset shows, as index arithmetic: a range, or one array of integers."""

import hashlib
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from loaders.errors import SelectionError
from loaders.views import checked_indices, span

Chosen = range | NDArray[Any]
"""The stored index of each sample: a range, or [samples] int32 or int64, read-only."""

_INT32_SPAN = 1 << 31


def stored_indices(chosen: Chosen, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the stored index of the samples at some places [B] in 0..len(chosen)-1."""
    if not isinstance(chosen, range):
        return chosen.take(places).astype(np.int64, copy=False)
    if chosen.start == 0 and chosen.step == 1:
        return places
    return places * chosen.step + chosen.start


def pick(values: NDArray[Any], chosen: Chosen) -> NDArray[Any]:
    """Return, of one value for each stored sample, those of the chosen ones, in their order."""
    if isinstance(chosen, range) and chosen.step == 1:
        return values[chosen.start : chosen.stop]
    return values.take(stored_indices(chosen, np.arange(len(chosen), dtype=np.int64)), axis=0)


def narrow(chosen: Chosen, wanted: Any, where: str) -> Chosen:
    """Choose among the chosen samples.

    Args:
        chosen: The samples to choose from.
        wanted: [n] integers in -len(chosen)..len(chosen)-1, in any order, repeats allowed; [all]
            booleans; a range; or a slice.
        where: Names the dataset in errors.

    Returns:
        A range where the result is one, else an array of 4 bytes a sample, 8 from 2^31 stored ones.

    Raises:
        SelectionError: It is none of these, an index is out of range, or nothing is chosen.
    """
    places = _places(wanted, len(chosen), where)
    if not len(places):
        raise SelectionError(f"{where}: no sample is selected: a selection needs at least one")
    if isinstance(places, range) and isinstance(chosen, range):
        start, step = chosen[places[0]], chosen.step * places.step
        return range(start, start + step * len(places), step)
    if isinstance(places, range):
        places = np.arange(places.start, places.stop, places.step, dtype=np.int64)
    found = stored_indices(chosen, places)
    if bool((np.diff(found) == 1).all()):
        return range(int(found[0]), int(found[-1]) + 1)
    narrow_enough = int(found.max()) < _INT32_SPAN
    array = found.astype(np.int32 if narrow_enough else np.int64, copy=False)
    array.flags.writeable = False
    return array


def _places(wanted: Any, count: int, where: str) -> range | NDArray[np.int64]:
    if isinstance(wanted, slice):
        return range(count)[wanted]
    if isinstance(wanted, range):
        _check_bounds(wanted, count, where)
        if all(place >= 0 for place in (*wanted[:1], *wanted[-1:])):
            return wanted
    if isinstance(wanted, torch.Tensor):
        wanted = wanted.detach().cpu()
    try:
        given = np.asarray(wanted)
    except (TypeError, ValueError) as error:
        raise SelectionError(f"{where}: select takes integers or booleans: {error}") from error
    if given.dtype == np.bool_:
        if given.shape != (count,):
            raise SelectionError(
                f"{where}: a mask of shape {list(given.shape)} for {count} samples: give one "
                "boolean for each"
            )
        return np.flatnonzero(given).astype(np.int64, copy=False)
    try:
        return checked_indices(given, count)
    except IndexError as error:
        raise SelectionError(f"{where}: {error}") from error


def _check_bounds(wanted: range, count: int, where: str) -> None:
    """Refuse a range beyond the samples before it takes memory."""
    for place in (*wanted[:1], *wanted[-1:]):
        if not -count <= place < count:
            raise SelectionError(f"{where}: index {place} is out of range for {count} samples")


@runtime_checkable
class Selecting(Protocol):
    """A dataset whose batches take some of the samples that it has."""

    @property
    def span(self) -> int:
        """Indices lie below."""
        ...

    @property
    def indices(self) -> Chosen:
        """Those that batches take, in any order, repeats allowed."""
        ...


def taken_once(dataset: Any) -> Chosen:
    """Return the indices that batches of a dataset may take, each once, ascending."""
    chosen = dataset.indices if isinstance(dataset, Selecting) else range(span(dataset))
    if isinstance(chosen, range):
        return chosen if chosen.step > 0 else chosen[::-1]
    return np.unique(chosen)


def places_in(taken: Chosen, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where indices [B] stand among those that `taken_once` gave, which they are of."""
    if not isinstance(taken, range):
        # Of one type: NumPy would widen all that were taken, for each batch anew.
        wanted = indices.astype(taken.dtype, copy=False)
        return np.searchsorted(taken, wanted).astype(np.int64, copy=False)
    if taken.start == 0 and taken.step == 1:
        return indices
    return (indices - taken.start) // taken.step


def is_whole(chosen: Chosen, span: int) -> bool:
    """Return whether these are all of `span` samples, as stored."""
    return isinstance(chosen, range) and chosen == range(span)


def selection_facts(chosen: Chosen, span: int) -> list[Any]:
    """Return what tells a selection from others of the same `span` samples; [] for all in order."""
    if is_whole(chosen, span):
        return []
    if isinstance(chosen, range):
        return [chosen.start, chosen.step, len(chosen)]
    data = np.ascontiguousarray(chosen, chosen.dtype.newbyteorder("<"))
    return [hashlib.sha256(data.data).hexdigest()]
