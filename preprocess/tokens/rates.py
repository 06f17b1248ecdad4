"""What a byte of a source of texts becomes: for estimates, and for nothing that is stored."""

from dataclasses import dataclass
from typing import Final

NBYTES_PER_TOKEN: Final = 3.5
"""Of usual texts and vocabularies, where no text has been looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a byte of a source becomes.

    Attributes:
        documents: How many documents.
        tokens: How many tokens, without those that a layout adds.
        beside: Bytes that are stored beside the tokens.
    """

    documents: float = 0.0
    tokens: float = 1 / NBYTES_PER_TOKEN
    beside: float = 0.0
