"""Conversion of Python's compiled regular expressions to the engine's patterns."""

from __future__ import annotations

import re
from typing import Any

from constrain.errors import RegexError

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_GLOBAL_FLAGS = re.compile(r"\(\?([a-z]+)\)")


def flag_letters(pattern: re.Pattern[Any]) -> str:
    """Return the letters of the flags of a pattern, whether they were arguments or inline.

    Raises:
        RegexError: the pattern is a pattern of bytes, or has a flag without a letter.
    """
    if isinstance(pattern.pattern, bytes):
        raise RegexError("the pattern is one of bytes; compile one of text")
    if pattern.flags & re.ASCII and not re.compile(pattern.pattern, pattern.flags & ~re.ASCII).flags & re.ASCII:
        raise RegexError("the flag re.ASCII is not known outside of the pattern; let the pattern begin with (?a)")
    return "".join(letter for letter, flag in _FLAGS.items() if pattern.flags & flag)


def with_flags(pattern: re.Pattern[str]) -> tuple[str, int]:
    """Write all flags of a pattern as an inline group at its start.

    Returns:
        The pattern as text, and the number of characters by which its body moved to the right.

    Raises:
        RegexError: as :func:`flag_letters`.
    """
    text, letters = pattern.pattern, flag_letters(pattern)
    group = _GLOBAL_FLAGS.match(text)
    letters = "".join(sorted({*letters, *(group[1] if group else "")}))
    flagged = (f"(?{letters})" if letters else "") + text[group.end() if group else 0 :]
    return flagged, len(flagged) - len(text)
