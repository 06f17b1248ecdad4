"""Option values of the command line that Click has no type for."""

import re
from typing import Any, Final

import click

_UNITS: Final = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip

# Digits are ASCII and few: `int` and `float` have limits of their own, far above any use.
_BYTES: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z]*)")
_SIZE: Final = r"[0-9]{1,9}(?:[xX×][0-9]{1,9})?"
_SIZES: Final = re.compile(rf"\s*{_SIZE}(?:(?:\s*,\s*|\s+){_SIZE})*\s*,?\s*")
_EXAMPLE: Final = "512 (a square) or 512x384 (width x height)"

_SPLIT: Final = r"(?:train|validation|val|test)=(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
_SPLITS: Final = re.compile(rf"\s*{_SPLIT}(?:(?:\s*,\s*|\s+){_SPLIT})*\s*,?\s*")
_SHARES_EXAMPLE: Final = "train=0.8 validation=0.1 test=0.1"
_ROUNDING: Final = 1e-9

Shares = tuple[tuple[str, float], ...]
"""(split, share of the whole) pairs."""

Sizes = tuple[tuple[int, int], ...]
"""(width, height) pairs in pixels."""


class ByteCount(click.ParamType[int]):
    """A number of bytes such as 256MB, 1.5GiB or 4096."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        if isinstance(value, int):
            return value
        match = _BYTES.fullmatch(str(value).strip().lower())
        if match is None or match[2] not in _UNITS or float(match[1]) == 0:
            self.fail(f"{value!r}: expected bytes such as 256MB, 1.5GiB or 4096", param, ctx)
        return max(1, int(float(match[1]) * _UNITS[match[2]]))


class Folder(click.Path):
    """A path; "" is refused, which Path would take for the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not str(value):
            self.fail("the path is empty; is a shell variable unset?", param, ctx)
        return super().convert(value, param, ctx)


class ImageSizes(click.ParamType[Sizes]):
    """One or more sizes in pixels: 512 for a square, 512x384 for width x height."""

    name = "sizes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Sizes:
        """Return (width, height) pairs."""
        if isinstance(value, tuple):
            return value
        text = str(value)
        if not text.strip():
            self.fail(f"at least one size must follow, such as {_EXAMPLE}", param, ctx)
        if not _SIZES.fullmatch(text):
            self.fail(f"{text!r}: expected sizes such as {_EXAMPLE}", param, ctx)
        pairs = []
        for size in re.findall(_SIZE, text):
            width, _, height = re.sub("[X×]", "x", size).partition("x")
            pair = (int(width), int(height or width))
            if 0 in pair:
                self.fail(f"{size!r}: a side must be at least 1 pixel", param, ctx)
            pairs.append(pair)
        return tuple(pairs)


def join_sizes(ctx: click.Context, param: click.Parameter, value: tuple[Sizes, ...]) -> Sizes:
    """Put the values of repeated options together; each size may be given once."""
    sizes = tuple(pair for group in value for pair in group)
    twice = next((pair for pair in sizes if sizes.count(pair) > 1), None)
    if twice is not None:
        width, height = twice
        shown = str(width) if width == height else f"{width}x{height}"
        raise click.BadParameter(f"{shown} is given twice", ctx=ctx, param=param)
    return sizes


def check_backend(ctx: click.Context, param: click.Parameter, name: str) -> str:
    """Refuse a joblib backend that is not there, before anything is listed or written."""
    if name == "auto":
        return name
    if name == "multiprocessing":
        reason = f"{name!r} forks a process that has threads, which can hang; use loky or threading"
        raise click.BadParameter(reason, ctx=ctx, param=param)
    from joblib import parallel_config
    from joblib.parallel import get_active_backend

    try:
        with parallel_config(backend=name):
            get_active_backend()
    except (ImportError, ValueError) as error:
        raise click.BadParameter(str(error), ctx=ctx, param=param) from error
    return name


class SplitShares(click.ParamType[Shares]):
    """One or more splits with their shares: train=0.8,validation=0.1,test=0.1."""

    name = "shares"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Shares:
        """Return (split, share) pairs."""
        if isinstance(value, tuple):
            return value
        if not _SPLITS.fullmatch(str(value)):
            self.fail(f"{value!r}: expected shares such as {_SHARES_EXAMPLE}", param, ctx)
        words = [word.partition("=") for word in re.findall(_SPLIT, str(value))]
        return tuple(("validation" if name == "val" else name, float(x)) for name, _, x in words)


def join_shares(
    ctx: click.Context, param: click.Parameter, value: tuple[Shares, ...]
) -> dict[str, float]:
    """Put the values of repeated options together: split -> share, those that are given.

    Each split may be given once; train may be left out, and else all are the whole.
    """
    pairs = [pair for group in value for pair in group]
    shares = dict(pairs)
    if len(shares) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise click.BadParameter(f"{twice} is given twice", ctx=ctx, param=param)
    total = sum(shares.values())
    if "train" in shares and abs(total - 1) > _ROUNDING:
        reason = f"the shares add up to {total:.10g}, not to 1"
        raise click.BadParameter(reason, ctx=ctx, param=param)
    return shares


class SharesCommand(click.Command):
    """A command whose `--split` takes every following word that is a share: NAME=SHARE.

    Click options take a fixed number of words. `--split train=0.8 validation=0.1 test=0.1` is how
    people write it, so the words after the flag are joined while they look like shares, wherever
    the flag stands. After `--` everything is left alone.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the shares, then parse as usual."""
        return super().parse_args(ctx, _join_words(args, "--split", _SPLITS)[0])


class SizesCommand(SharesCommand):
    """A command whose `--sizes`, too, takes every following word that is a size.

    A folder whose name is a number is written `./2024`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the sizes, then parse as usual."""
        words, last = _join_words(args, "--sizes", _SIZES)
        try:
            return super().parse_args(ctx, words)
        except click.MissingParameter as error:
            if not isinstance(error.param, click.Argument) or not last:
                raise
            hint = f"{last} was taken as a size; if it is a folder, write ./{last}"
            raise click.MissingParameter(f"({hint})", ctx=ctx, param=error.param) from error
        except click.UsageError as error:
            if type(error) is click.UsageError:  # words left over
                message = f"{error.message}. Sizes are written {_EXAMPLE}"
                raise click.UsageError(message, ctx=ctx) from error
            raise


def _join_words(args: list[str], flag: str, kind: re.Pattern[str]) -> tuple[list[str], str]:
    """Return the words with each run of values of a flag as one, and the last that was joined."""
    joined: list[str] = []
    last = ""
    rest = args
    while rest:
        word, *rest = rest
        if word == "--":
            return [*joined, word, *rest], last
        if word != flag and not word.startswith(f"{flag}="):
            joined.append(word)
            continue
        values = [word.removeprefix(f"{flag}=")] if word != flag else []
        # "-5" is a size that is refused; any other word with a dash is the next option.
        if not values and rest and re.match(r"[^-]|-[0-9]", rest[0]):
            values.append(rest.pop(0))
        while rest and values and kind.fullmatch(rest[0]):
            last = rest.pop(0)
            values.append(last)
        joined += [flag, ",".join(value.strip().rstrip(",") for value in values)]
    return joined, last
