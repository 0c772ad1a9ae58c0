"""Analysis of regular expressions: do they depend on text outside of their match?"""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as parser
else:
    import sre_constants as sre
    import sre_parse as parser

_REPEATS = {sre.MAX_REPEAT, sre.MIN_REPEAT, getattr(sre, "POSSESSIVE_REPEAT", None)}
_ATOMIC_GROUP = getattr(sre, "ATOMIC_GROUP", object())
_BOUNDARIES = {sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY}
_UNLIMITED = int(sre.MAXREPEAT)


def looks_outside(pattern: str, ahead: bool) -> str | None:
    """Describe a construct of a pattern that may depend on the text before its match; ``None`` if there is none.

    A construct is harmless if the match itself always contains the characters that it looks at: ``"(?<!x)"`` is fine
    after at least one character of the pattern.

    Args:
        pattern: in Python's dialect.
        ahead: look for constructs that depend on the text after the match, too. Not needed for terminals: the engine
            checks their lookahead against what may follow.

    Raises:
        re.error: the pattern is malformed.
    """
    tree = parser.parse(pattern)
    return _sequence(tree, 0, 0 if ahead else _UNLIMITED, bool(tree.state.flags & re.MULTILINE))


def _sequence(sequence: Any, before: int, after: int, multiline: bool) -> str | None:
    """Search a sequence that has at least ``before`` and ``after`` matched characters around it."""
    widths = [_width(sequence, item)[0] for item in sequence]
    after += sum(widths)
    for width, (op, argument) in zip(widths, sequence, strict=True):
        after -= width
        if found := _item(op, argument, before, after, multiline):
            return found
        before += width
    return None


def _item(op: Any, argument: Any, before: int, after: int, multiline: bool) -> str | None:
    if op is sre.AT:
        return _position(argument, before, after, multiline)
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        direction, inner = argument
        reach = inner.getwidth()[1]
        if direction < 0 and reach > before:
            return "a lookbehind that can see text before the terminal"
        if direction > 0 and reach > after:
            return "a lookahead that can see text after the terminal"
        return None
    if op is sre.SUBPATTERN:
        _, added, removed, inner = argument
        multiline = bool((multiline or added & re.MULTILINE) and not removed & re.MULTILINE)
        return _sequence(inner, before, after, multiline)
    return next(
        (found for inner in _parts(op, argument) if (found := _sequence(inner, before, after, multiline))), None
    )


def _parts(op: Any, argument: Any) -> list[Any]:
    if op is sre.BRANCH:
        return list(argument[1])
    if op in _REPEATS:
        return [argument[2]]
    if op is _ATOMIC_GROUP:
        return [argument]
    if op is sre.GROUPREF_EXISTS:
        return [inner for inner in argument[1:] if inner is not None]
    return []


def _position(at: Any, before: int, after: int, multiline: bool) -> str | None:
    if at in _BOUNDARIES:
        return None if before and after else "a word boundary at the edge of the terminal"
    if at is sre.AT_BEGINNING:
        return None if multiline and before else "^, which depends on the text before the terminal"
    if at is sre.AT_END:
        harmless = (multiline and after) or after >= _UNLIMITED
        return None if harmless else "$, which depends on the text after the terminal"
    if at is sre.AT_END_STRING and after >= _UNLIMITED:
        return None
    return "\\A or \\Z, which depends on the text around the terminal"


def _width(sequence: Any, item: Any) -> tuple[int, int]:
    low, high = parser.SubPattern(sequence.state, [item]).getwidth()
    return int(low), int(high)
