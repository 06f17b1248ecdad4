"""A split that grows: the facts of its shards, and those of the shards that come after them."""

from dataclasses import replace

from loaders.format.split_spec import ShardFiles, SplitSpec
from preprocess.stats import merge_tallies


def joined(old: SplitSpec, new: SplitSpec) -> SplitSpec:
    """Return what a split holds once further shards follow its own.

    Args:
        old: The split as it is.
        new: The further shards, with capacity and items of the whole.
    """
    classes = None
    if old.class_counts is not None and new.class_counts is not None:
        pairs = zip(old.class_counts, new.class_counts, strict=True)
        classes = tuple(a + b for a, b in pairs)
    tallies = dict(old.tallies)
    merge_tallies(tallies, new.tallies)
    return replace(
        new,
        counts=(*old.counts, *new.counts),
        values={name: (*counts, *new.values[name]) for name, counts in old.values.items()},
        files={
            name: ShardFiles(
                nbytes=(*files.nbytes, *new.files[name].nbytes),
                crc32c=(*files.crc32c, *new.files[name].crc32c),
            )
            for name, files in old.files.items()
        },
        statistics={name: found + new.statistics[name] for name, found in old.statistics.items()},
        class_counts=classes,
        tallies=tallies,
    )
