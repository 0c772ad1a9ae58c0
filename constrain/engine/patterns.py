"""Compiled regular expressions of Python's ``re``, as the engine can read them."""

from __future__ import annotations

import re
from typing import Any

from constrain.errors import RegexError

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_GLOBAL_FLAGS = re.compile(r"\(\?([a-z]+)\)")


def flag_letters(pattern: re.Pattern[Any]) -> str:
    """Letters for the flags of a pattern that its text need not tell.

    Raises:
        RegexError: the pattern is one of bytes, or has flags that cannot be told.
    """
    if isinstance(pattern.pattern, bytes):
        raise RegexError("the pattern is one of bytes; compile one of text")
    if pattern.flags & re.ASCII and not re.compile(pattern.pattern, pattern.flags & ~re.ASCII).flags & re.ASCII:
        raise RegexError("the flag re.ASCII is not known outside of the pattern; let the pattern begin with (?a)")
    return "".join(letter for letter, flag in _FLAGS.items() if pattern.flags & flag)


def with_flags(pattern: re.Pattern[str]) -> tuple[str, int]:
    """A pattern as text that begins with all of its flags, and by how much its characters have moved to the right.

    Raises:
        RegexError: as :func:`flag_letters`.
    """
    text, letters = pattern.pattern, flag_letters(pattern)
    head = _GLOBAL_FLAGS.match(text)
    told = head[1] if head else ""
    letters = "".join(sorted({*letters, *told}))
    flagged = (f"(?{letters})" if letters else "") + text[head.end() if head else 0 :]
    return flagged, len(flagged) - len(text)
