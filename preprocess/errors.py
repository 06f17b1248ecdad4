"""Errors of preparation; the whole tree is drawn in `loaders.errors`."""

from loaders.errors import ShardsError


class SourceError(ShardsError):
    """The input as a whole cannot be prepared."""


class OutputError(ShardsError):
    """The output folder cannot take this run: not empty, another run's, too small or read-only."""


class SampleError(ShardsError):
    """One item cannot become a sample; it is skipped, counted and listed.

    Attributes:
        key: Names the item, as in the dataset's `key` field.
        reason: Why, in one line.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"
