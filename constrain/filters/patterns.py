"""Regular expressions for literal text, for the prefix and select filters."""

from __future__ import annotations

from collections.abc import Iterable

_METACHARACTERS = frozenset(r"\.^$*+?()[]{}|")


def literal(text: str) -> str:
    """Return a pattern that matches ``text`` alone."""
    return "".join("\\" + c if c in _METACHARACTERS else c for c in text)


def any_case(text: str) -> str:
    """Return a pattern that matches ``text`` with every letter in either case.

    Letters whose other case is more than one character (``ß``) stand for themselves.
    """
    return "".join(_either_case(c) for c in text)


def alternatives(patterns: Iterable[str]) -> str:
    """Return the alternation of ``patterns``."""
    return "(?:" + "|".join(patterns) + ")"


def _either_case(char: str) -> str:
    cases = sorted({c for c in (char, char.lower(), char.upper()) if len(c) == 1})
    return f"[{''.join(cases)}]" if len(cases) > 1 else literal(char)
