"""Prepare raw data once as shards: what the `prep` command calls. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preprocess.check import check_dataset
    from preprocess.errors import OutputError, SampleError, SourceError
    from preprocess.export import export_tokens
    from preprocess.images import ImageOptions, images_to_shards
    from preprocess.plan import RunOptions
    from preprocess.report import Report
    from preprocess.table_options import TableOptions
    from preprocess.tables import table_to_shards
    from preprocess.text_options import TextOptions
    from preprocess.token_options import TokenOptions
    from preprocess.tokenizer_tiktoken import TiktokenFile
    from preprocess.tokens import tokens_to_shards

__all__ = [
    "ImageOptions",
    "OutputError",
    "Report",
    "RunOptions",
    "SampleError",
    "SourceError",
    "TableOptions",
    "TextOptions",
    "TiktokenFile",
    "TokenOptions",
    "check_dataset",
    "export_tokens",
    "images_to_shards",
    "table_to_shards",
    "tokens_to_shards",
]

_MODULES = {
    "ImageOptions": "images",
    "Report": "report",
    "RunOptions": "plan",
    "TableOptions": "table_options",
    "TextOptions": "text_options",
    "TiktokenFile": "tokenizer_tiktoken",
    "TokenOptions": "token_options",
    "check_dataset": "check",
    "export_tokens": "export",
    "images_to_shards": "images",
    "table_to_shards": "tables",
    "tokens_to_shards": "tokens",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
