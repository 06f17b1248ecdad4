"""Prepare raw data once as shards: what the `prep` command calls. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preprocess.check import check_dataset
    from preprocess.errors import OutputError, SampleError, SourceError
    from preprocess.images import ImageOptions, images_to_shards
    from preprocess.plan import RunOptions
    from preprocess.report import Report

__all__ = [
    "ImageOptions",
    "OutputError",
    "Report",
    "RunOptions",
    "SampleError",
    "SourceError",
    "check_dataset",
    "images_to_shards",
]

_MODULES = {
    "ImageOptions": "images",
    "Report": "report",
    "RunOptions": "plan",
    "check_dataset": "check",
    "images_to_shards": "images",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
