"""Read what `prep` wrote: memory-mapped datasets, whole batches, normalization on the device.

Names load on first use: importing this package (or `loaders.format`, as `prep` does) loads
neither torch nor anything else that is slow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loaders.augment import Augment
    from loaders.batches import Loader
    from loaders.box_maps import boxes_to_original, boxes_to_stored
    from loaders.bucket_batches import BucketBatches
    from loaders.dataset import ShardDataset, open_dataset
    from loaders.errors import (
        ChecksumError,
        DeviceError,
        FormatError,
        ImageTypeError,
        IncompleteError,
        MissingShardError,
        NormalizeError,
        SelectionError,
        ShardsError,
        VersionError,
    )
    from loaders.mix import Mix
    from loaders.normalize import Normalize, NormalizedModel
    from loaders.residency import ResidencyEstimate, estimate_residency
    from loaders.standardize import Standardize
    from loaders.table_encoder import TableEncoder
    from loaders.tables import TableDataset, open_table
    from loaders.token_packs import document_mask
    from loaders.tokens import TokenDataset, open_token_file, open_tokens
    from loaders.weighted import Weighted

__all__ = [
    "Augment",
    "BucketBatches",
    "ChecksumError",
    "DeviceError",
    "FormatError",
    "ImageTypeError",
    "IncompleteError",
    "Loader",
    "MissingShardError",
    "Mix",
    "Normalize",
    "NormalizeError",
    "NormalizedModel",
    "ResidencyEstimate",
    "SelectionError",
    "ShardDataset",
    "ShardsError",
    "Standardize",
    "TableDataset",
    "TableEncoder",
    "TokenDataset",
    "VersionError",
    "Weighted",
    "boxes_to_original",
    "boxes_to_stored",
    "document_mask",
    "estimate_residency",
    "open_dataset",
    "open_table",
    "open_token_file",
    "open_tokens",
]

_MODULES = {
    "Augment": "augment",
    "BucketBatches": "bucket_batches",
    "Loader": "batches",
    "Mix": "mix",
    "Normalize": "normalize",
    "NormalizedModel": "normalize",
    "ResidencyEstimate": "residency",
    "ShardDataset": "dataset",
    "Standardize": "standardize",
    "TableDataset": "tables",
    "TableEncoder": "table_encoder",
    "TokenDataset": "tokens",
    "Weighted": "weighted",
    "boxes_to_original": "box_maps",
    "boxes_to_stored": "box_maps",
    "document_mask": "token_packs",
    "estimate_residency": "residency",
    "open_dataset": "dataset",
    "open_table": "tables",
    "open_token_file": "tokens",
    "open_tokens": "tokens",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
