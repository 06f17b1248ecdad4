"""The protocol between the engine and one kind of raw data."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from loaders.format.spec import FieldSpec
from preprocess.errors import SampleError
from preprocess.sources import Item, Listing

Sample = Mapping[str, NDArray[Any]]
"""Field name -> one array of the field's dtype and shape."""


class Recipe(Protocol):
    """How one kind of raw data becomes samples. A frozen, picklable dataclass of plain options."""

    @property
    def kind(self) -> str:
        """Name of the modality; the loader picks the reading side by it."""
        ...

    def options(self) -> dict[str, Any]:
        """Return everything that changes bytes, as JSON values; it is recorded and hashed."""
        ...

    def backend(self, listing: Listing, workers: int) -> str:
        """Return the joblib backend that suits these items on that many workers."""
        ...

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return what every sample will hold."""
        ...

    def settings(self) -> AbstractContextManager[None]:
        """Return what holds this process's libraries as `samples` wants them, and undoes that.

        Entered once per process at a time, around all threads that make samples.
        """
        ...

    def samples(self, source: Path, items: Sequence[Item]) -> Iterator[Sample | SampleError]:
        """Yield exactly one result per item of `source`, in order; a bad item yields its error."""
        ...
