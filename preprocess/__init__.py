"""Prepare raw data once as shards: what the `prep` command calls. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preprocess.check import check_dataset
    from preprocess.errors import OutputError, SampleError, SourceError
    from preprocess.images.beside import MetadataOptions, SplitOptions
    from preprocess.images.options import ImageOptions
    from preprocess.images.prepare import images_to_shards
    from preprocess.plan import RunOptions
    from preprocess.recorded import Moved
    from preprocess.repair import RepairReport, repair_dataset
    from preprocess.report import Report
    from preprocess.tables.options import TableOptions
    from preprocess.tables.prepare import table_to_shards
    from preprocess.texts.options import TextOptions
    from preprocess.tokens.export import export_tokens
    from preprocess.tokens.options import TokenOptions
    from preprocess.tokens.prepare import tokens_to_shards
    from preprocess.tokens.tokenizer_tiktoken import TiktokenFile

__all__ = [
    "ImageOptions",
    "MetadataOptions",
    "Moved",
    "OutputError",
    "RepairReport",
    "Report",
    "RunOptions",
    "SampleError",
    "SourceError",
    "SplitOptions",
    "TableOptions",
    "TextOptions",
    "TiktokenFile",
    "TokenOptions",
    "check_dataset",
    "export_tokens",
    "images_to_shards",
    "repair_dataset",
    "table_to_shards",
    "tokens_to_shards",
]

_MODULES = {
    "ImageOptions": "images.options",
    "MetadataOptions": "images.beside",
    "Moved": "recorded",
    "RepairReport": "repair",
    "Report": "report",
    "RunOptions": "plan",
    "SplitOptions": "images.beside",
    "TableOptions": "tables.options",
    "TextOptions": "texts.options",
    "TiktokenFile": "tokens.tokenizer_tiktoken",
    "TokenOptions": "tokens.options",
    "check_dataset": "check",
    "export_tokens": "tokens.export",
    "images_to_shards": "images.prepare",
    "repair_dataset": "repair",
    "table_to_shards": "tables.prepare",
    "tokens_to_shards": "tokens.prepare",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
