"""Option values of the command line that Click has no type for."""

import re
from typing import Any, Final

import click

_UNITS: Final = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip

_SIZES = re.compile(r"\d+(x\d+)?(,\d+(x\d+)?)*")


class ByteCount(click.ParamType[int]):
    """A number of bytes such as 256MB, 1.5GiB or 4096."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(value).strip().lower())
        if match is None or match[2] not in _UNITS or float(match[1]) == 0:
            self.fail(f"{value!r}: expected bytes such as 256MB, 1.5GiB or 4096", param, ctx)
        return max(1, int(float(match[1]) * _UNITS[match[2]]))


class ImageSizes(click.ParamType[tuple[tuple[int, int], ...]]):
    """One or more sizes in pixels: 512 for a square, 512x384 for width x height."""

    name = "sizes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, int], ...]:
        """Return (width, height) pairs."""
        if isinstance(value, tuple):
            return value
        if not _SIZES.fullmatch(str(value)):
            self.fail(f"{value!r}: expected sizes such as 512 or 512x384", param, ctx)
        pairs = (part.partition("x") for part in str(value).split(","))
        return tuple((int(width), int(height or width)) for width, _, height in pairs)


class SizesCommand(click.Command):
    """A command whose `--sizes` takes every following word that is a size.

    Click options take a fixed number of words. `--sizes 512 1024` is how people write it, so the
    words after the flag are joined while they look like sizes, wherever the flag stands. After
    `--` everything is left alone; a folder whose name is a number is written `./2024`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the sizes, then parse as usual."""
        joined: list[str] = []
        words = iter(args)
        for word in words:
            if joined and joined[-2:-1] == ["--sizes"] and _SIZES.fullmatch(word):
                joined[-1] = f"{joined[-1]},{word}" if joined[-1] else word
            elif word == "--sizes":
                joined += [word, ""]
            elif word == "--":
                joined += [word, *words]
            else:
                joined.append(word)
        try:
            return super().parse_args(ctx, joined)
        except click.MissingParameter as error:
            taken = next((w for w in joined if "," in w and _SIZES.fullmatch(w)), None)
            if not isinstance(error.param, click.Argument) or taken is None:
                raise
            last = taken.rpartition(",")[2]
            hint = f"if {last} is a folder and not a size, write ./{last}"
            raise click.MissingParameter(hint, ctx=ctx, param=error.param) from error
