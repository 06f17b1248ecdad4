"""How a finished dataset was asked for: its options again, out of its manifest and its report."""

import glob
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from loaders.errors import ShardsError
from loaders.format.files import REPORT
from loaders.format.spec import Manifest
from preprocess.errors import OutputError, SourceError
from preprocess.images.beside import MetadataOptions, SplitOptions
from preprocess.images.options import ImageOptions
from preprocess.plan import SHARD_NBYTES, RunOptions
from preprocess.tables.options import TableOptions
from preprocess.tables.request import TableRequest
from preprocess.tables.toml import Wish
from preprocess.texts.options import TextOptions
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.special import FOLDER
from preprocess.tokens.tokenizer_source import find_tokenizer
from preprocess.tokens.tokenizer_tiktoken import TiktokenFile

P = ParamSpec("P")
Options = TypeVar("Options")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Where things are now that a dataset was made with, beside its source.

    Attributes:
        tokenizer: Of tokens; None for where it was, or the dataset's copy.
        like: The other dataset of a table; None for where it was, as for the others.
        masks: Folder of masks of photos.
        boxes: Their boxes: a COCO json, or a folder.
        metadata: The table beside the photos.
    """

    tokenizer: str | None = None
    like: Path | None = None
    masks: Path | None = None
    boxes: Path | None = None
    metadata: Path | None = None


def expect_there(root: Path, source: Any, moved: Moved) -> None:
    """Refuse what is not there, before a byte is read: also where nothing turns out to be bad."""
    is_named = isinstance(source, str | Path)
    if is_named and not (os.path.lexists(source) or glob.has_magic(str(source))):
        raise SourceError(f"{source}: not found; give what {root} was made from")
    for name in ("like", "masks", "boxes", "metadata"):
        path = getattr(moved, name)
        if path is not None and not Path(path).exists():
            raise SourceError(f"{path}: not found; give --{name} as it is now, or leave it out")


def _of_this_version(
    read: "Callable[Concatenate[Recorded, P], Options]",
) -> "Callable[Concatenate[Recorded, P], Options]":
    """Have recorded options refused by name that are not what this version of prep records."""

    @wraps(read)
    def refusing(recorded: "Recorded", /, *args: P.args, **options: P.kwargs) -> Options:
        try:
            return read(recorded, *args, **options)
        except ShardsError:
            raise
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise OutputError(
                f"{recorded.root}: the options in its manifest are not those of this version of "
                f"prep ({type(error).__name__}: {error}); prepare the dataset again with "
                "--overwrite"
            ) from error

    return refusing


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a dataset has recorded of how it was made.

    Attributes:
        root: The dataset's folder.
        manifest: Its manifest.
        aside: What `read_aside` returns.
        moved: Where things are now.
    """

    root: Path
    manifest: Manifest
    aside: Mapping[str, Any]
    moved: Moved

    @property
    def limit(self) -> int | None:
        """How many items were taken; None for all."""
        return self.aside.get("limit")

    @_of_this_version
    def run_options(self, workers: int | None) -> RunOptions:
        """Return how to run, so that shards are cut as they were."""
        return RunOptions(
            container=self.manifest.container,
            shard_nbytes=self.aside.get("shard_nbytes", SHARD_NBYTES),
            workers=workers,
        )

    @_of_this_version
    def image_options(self) -> ImageOptions:
        """Return what was made of each photo.

        Raises:
            SourceError: Masks, boxes or metadata are no more where they were.
            OutputError: Where they were is not known, or the options are of another version.
        """
        recipe = self.manifest.recipe
        found: ImageOptions = _options(
            ImageOptions,
            recipe,
            masks=self._place("masks", self.aside.get("masks")) if recipe.get("masks") else None,
            boxes=self._place("boxes", self.aside.get("boxes")) if recipe.get("boxes") else None,
            metadata=self._metadata() if recipe.get("metadata") else None,
            splits=_options(SplitOptions, recipe.get("splits", {})),
        )
        return found

    def _metadata(self) -> MetadataOptions:
        aside = self.aside.get("metadata", {})
        targets = tuple(self.manifest.recipe["targets"])
        path = self._place("metadata", aside.get("path"))
        found: MetadataOptions = _options(MetadataOptions, aside, path=path, targets=targets)
        return found

    def _place(self, name: str, before: str | None) -> Path:
        """Return where something beside the photos is."""
        path: Path | None = getattr(self.moved, name) or (None if before is None else Path(before))
        if path is None:
            raise OutputError(
                f"{self.root}: where the {name} of its photos are is not known: {REPORT}, which "
                f"says so, is not the one of its run; give --{name}"
            )
        if not path.exists():
            raise SourceError(
                f"{path}: not found; it has the {name} of the photos: --{name} says where they are"
            )
        return path

    @_of_this_version
    def token_options(self) -> TokenOptions:
        """Return what was made of texts.

        Raises:
            OutputError: The options are of another version.
        """
        recipe = self.manifest.recipe
        found: TokenOptions = _options(
            TokenOptions,
            {**recipe, "engine": "auto"},
            text=_options(TextOptions, recipe["text"]),
            tokenizer=self._find_tokenizer(),
        )
        return found

    @_of_this_version
    def table_request(self, source: Any, out: Path) -> TableRequest:
        """Return what was made of a table.

        Args:
            source: The table.
            out: Where to write.

        Raises:
            OutputError: The options are of another version.
        """
        recipe = self.manifest.recipe
        tokenizer = self._find_tokenizer() if recipe["text"] else None
        like = None if recipe["like_sha256"] is None else self.moved.like or self.aside.get("like")
        return TableRequest(
            source=source,
            out=out,
            options=_options(TableOptions, recipe, tokenizer=tokenizer),
            wishes={name: Wish(**wish) for name, wish in recipe["columns"].items()},
            like=None if like is None else Path(like),
            out_of_range=recipe.get("out_of_range", "refuse"),
            limit=self.limit,
            follow_links=self.aside.get("follow_links", False),
        )

    def _find_tokenizer(self) -> str | TiktokenFile:
        """Return the tokenizer that was given, or where it was, or else the dataset's copy."""
        if self.moved.tokenizer is not None:
            return self.moved.tokenizer
        copy = str(self.root / FOLDER)
        where = self.aside.get("tokenizer", copy)
        named = where if isinstance(where, str) else _options(TiktokenFile, where)
        try:
            find_tokenizer(named)
        except SourceError:
            return copy
        return named


def _options(kind: Any, recorded: Mapping[str, Any], **given: Any) -> Any:
    """Return options out of their JSON form; lists become tuples.

    What is not recorded changes no byte. Whether all is as it was, the hash of the recipe says.
    """
    names = [field.name for field in fields(kind) if field.name in recorded.keys() - given.keys()]
    return kind(**{name: _tuples(recorded[name]) for name in names}, **given)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
