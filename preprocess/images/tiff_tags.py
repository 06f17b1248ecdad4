"""The tags of a TIFF's page that say how its samples lie.

Source:
    TIFF 6.0, sections 8, 12, 18 and 19; ICC.1 annex B.3 for the profile's.
"""

from typing import Final

SUBFILE: Final = 254
BITS: Final = 258
PHOTOMETRIC: Final = 262
ORIENTATION: Final = 274
SAMPLES: Final = 277
PLANES: Final = 284
EXTRA: Final = 338
FORMAT: Final = 339
ICC: Final = 34675

OF_ANOTHER_PAGE: Final = 0b101
"""Bits of SUBFILE: a page at lower resolution, a transparency mask."""
