"""What items held when they were read: checksums, as receipts and `items.jsonl` have them."""

import re
from collections.abc import Sequence
from typing import Any, Final

from loaders.format.strict import Place

Contents = Sequence[tuple[str, ...]]
"""Of each item, the CRC-32C of what was read of each of its files, 8 hexadecimal digits; nothing
where that is not known."""

NOT_READ: Final = ""
"""In the place of a checksum: the file was not read, or not to its end."""

_DIGITS: Final = re.compile(r"([0-9a-f]{8})?")


def parse_contents(place: Place, value: Any) -> tuple[str, ...]:
    """Read the checksums of the files of one item.

    Raises:
        FormatError: They are damaged.
    """
    return place.texts(value, _DIGITS)
