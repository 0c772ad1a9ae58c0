"""Offsets in texts as JavaScript counts them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable

_TWO_UNITS = re.compile("[\U00010000-\U0010ffff]")


class Utf16Offsets:
    """Converts offsets in characters (code points) of a text to offsets in UTF-16 code units."""

    def __init__(self, text: str) -> None:
        self._two_units = [match.start() for match in _TWO_UNITS.finditer(text)]

    def at(self, offset: int) -> int:
        """Return an offset in code units."""
        return offset + bisect_left(self._two_units, offset)

    def span(self, span: Iterable[int]) -> list[int]:
        """Return the start and end of a span in code units."""
        return [self.at(offset) for offset in span]
