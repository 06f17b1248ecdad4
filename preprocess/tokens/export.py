"""A dataset of tokens -> the files of another trainer."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, get_args

from loaders.format.columns import open_column
from loaders.format.spec import Manifest, read_manifest
from loaders.format.split_spec import SplitSpec
from preprocess.errors import OutputError, SourceError
from preprocess.room import check_room, saying_what_is_wanted
from preprocess.tokens.files import (
    Exported,
    LlmcModel,
    Part,
    export_llmc,
    export_megatron,
    export_nanogpt,
)

Target = Literal["nanogpt", "megatron", "llmc"]
TARGETS: Final = get_args(Target)

_NANOGPT_NAMES: Final = {"train": "train.bin", "validation": "val.bin", "test": "test.bin"}
_LLMC_NAMES: Final = {"train": "train", "validation": "val", "test": "test"}
_FIELD: Final = "tokens"


def export_tokens(path: Path | str, folder: Path | str, target: Target) -> dict[str, Exported]:
    """Write every split of a dataset of tokens as another trainer's files.

    Args:
        path: The dataset: documents of any length (layout stream).
        folder: Where the files go; none of them may be there yet.
        target: "nanogpt" (`train.bin`, `val.bin`), "megatron" (`train.bin` and `train.idx`, ...) or
            "llmc" (`train/train_000000.bin`, ..., `val/val_000000.bin`).

    Returns:
        Split -> what was written.

    Raises:
        IncompleteError: There is no finished dataset.
        SourceError: It holds no documents of tokens, or the trainer's files cannot hold them.
        OutputError: The files cannot be written.
        FormatError: A shard is damaged.
    """
    root, out = Path(path), Path(folder)
    manifest = read_manifest(root)
    if manifest.kind != "tokens" or manifest.recipe.get("layout") != "stream":
        what = manifest.kind
        if manifest.kind == "tokens":
            what = f"tokens, layout {manifest.recipe.get('layout')}"
        raise SourceError(
            f"{root}: holds {what}; only tokens in layout stream are documents that another "
            "trainer can take: prepare them with --layout stream"
        )
    inside = Path(os.path.realpath(out))
    if root.resolve() == inside:
        raise OutputError(f"{out}: is the dataset {root}; give a folder outside it")
    if root.resolve() in inside.parents:
        raise OutputError(f"{out}: lies inside the dataset {root}; give a folder outside it")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out}: cannot be made: {error.strerror}") from error
    nbytes = sum(sum(split.files[_FIELD].nbytes) for split in manifest.splits.values())
    check_room(out, nbytes)
    with saying_what_is_wanted(out, lambda: nbytes):
        return {name: _export_split(root, out, target, manifest, name) for name in manifest.splits}


def _export_split(root: Path, out: Path, target: Target, manifest: Manifest, name: str) -> Exported:
    split = manifest.splits[name]
    parts = _parts(root, manifest, name)
    if target == "nanogpt":
        return export_nanogpt(parts, out / _NANOGPT_NAMES[name])
    if target == "megatron":
        return export_megatron(parts, out / name)
    short = _LLMC_NAMES[name]
    return export_llmc(parts, out / short, model=_model(split), name=short)


def _model(split: SplitSpec) -> LlmcModel:
    stored = next(field for field in split.fields if field.name == _FIELD)
    return "gpt-2" if stored.dtype == "uint16" else "llama-3"


def _parts(root: Path, manifest: Manifest, name: str) -> Iterator[Part]:
    """Yield the shards of a split, mapped."""
    for index, count in enumerate(manifest.splits[name].counts):
        if count:
            values = open_column(root, manifest, name, _FIELD, index)
            offsets = open_column(root, manifest, name, f"{_FIELD}_offsets", index)
            yield values, offsets.view("<u8")
