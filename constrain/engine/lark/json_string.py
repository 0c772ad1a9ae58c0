"""Grammars of the texts of JSON strings: their regular expressions, for texts in which characters are escaped.

The texts stand between the quotes of a string, with no more escapes than JSON requires. Each character has one spelling
there, and none is the beginning of another, so that a regular expression of characters becomes one of their spellings
piece by piece, lookahead included.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from typing import Any

from constrain.errors import GrammarError

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as parser
else:
    import sre_constants as sre
    import sre_parse as parser

#: The characters that JSON escapes, as a class of a regular expression, ...
_ESCAPED = r'["\\\x00-\x1f]'
#: ... and as they are.
_ESCAPED_CHARACTERS = ['"', "\\", *map(chr, range(0x20))]

#: Characters that other spellings end with, so that what stands before a place does not show whether it is one of them.
_AMBIGUOUS = [*"bfnrt0123456789abcdef", *map(chr, range(0x20))]

_FLAGS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}
_REPEATS = {sre.MAX_REPEAT: "", sre.MIN_REPEAT: "?", getattr(sre, "POSSESSIVE_REPEAT", None): "+"}
_ATOMIC_GROUP = getattr(sre, "ATOMIC_GROUP", object())
_FAILURE = getattr(sre, "FAILURE", object())
_UNLIMITED = int(sre.MAXREPEAT)


@dataclass(frozen=True)
class InJsonString:
    """The texts of a grammar as a JSON string has them between its quotes, with no more escapes than JSON requires.

    Attributes:
        grammar: the text of a Lark grammar, or a regular expression for whole texts. Word boundaries, ``^`` and ``$``
            within a text, and most lookbehind (but not ``(?<!\\\\)``) cannot be enforced there, nor can ``%json``,
            special tokens and other grammars be a part of it.
    """

    grammar: str | re.Pattern[str]


def escaped(text: str) -> str:
    """Return a text as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def escaped_pattern(pattern: str, flags: int = 0, *, is_whole: bool = False) -> str:
    """Return the regular expression of the texts of another as JSON strings have them.

    Args:
        pattern: in Python's dialect.
        flags: its flags, besides those that it contains.
        is_whole: whether it matches whole texts, so that ``^`` and ``$`` may stand around it.

    Raises:
        re.error: it is malformed.
        GrammarError: it has something that cannot be enforced in a string.
    """
    try:
        tree = parser.parse(pattern, flags)
        written = _sequence(tree, tree.state.flags, not is_whole, not is_whole)
    except RecursionError as error:
        raise GrammarError("the regular expression is nested too deeply") from error
    return _grouped(written, tree.state.flags, 0)


def _grouped(expression: str, added: int, removed: int) -> str:
    on, off = ("".join(letter for letter, flag in _FLAGS.items() if flags & flag) for flags in (added, removed))
    return f"(?{on}{f'-{off}' if off else ''}:{expression})"


def _sequence(sequence: Any, flags: int, before: bool, after: bool) -> str:
    """Rewrite a sequence; ``before`` and ``after`` say whether more of the text may stand around it."""
    items = [*sequence]
    widths = [parser.SubPattern(sequence.state, [item]).getwidth()[1] for item in items]
    return "".join(
        _item(op, argument, flags, before or any(widths[:place]), after or any(widths[place + 1 :]))
        for place, (op, argument) in enumerate(items)
    )


def _item(op: Any, argument: Any, flags: int, before: bool, after: bool) -> str:
    if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
        return _character(op, argument, flags)
    if op is sre.BRANCH:
        return "(?:" + "|".join(_sequence(each, flags, before, after) for each in argument[1]) + ")"
    if op is sre.SUBPATTERN:
        _, added, removed, inner = argument
        return _grouped(_sequence(inner, (flags | added) & ~removed, before, after), added, removed)
    if op in _REPEATS:
        low, high, inner = argument
        repeats = high > 1
        bounds = f"{{{low},{'' if high >= _UNLIMITED else high}}}{_REPEATS[op]}"
        return f"(?:{_sequence(inner, flags, before or repeats, after or repeats)}){bounds}"
    if op is _ATOMIC_GROUP:
        return f"(?>{_sequence(argument, flags, before, after)})"
    if op is _FAILURE:
        return "(?!)"
    if op in (sre.ASSERT, sre.ASSERT_NOT) and argument[0] > 0:
        return f"(?{'=' if op is sre.ASSERT else '!'}{_sequence(argument[1], flags, True, True)})"
    if op in (sre.ASSERT, sre.ASSERT_NOT) and _is_told_apart(argument[1], flags):
        [(kind, character)] = argument[1]
        return f"(?<{'=' if op is sre.ASSERT else '!'}{_character(kind, character, flags)})"
    if op is sre.AT and not _is_inside(argument, before, after):
        return ""
    raise GrammarError(f"{_described(op)} cannot be enforced in the text of a JSON string")


def _is_told_apart(before: Any, flags: int) -> bool:
    """Return whether what a lookbehind looks for is one character that only its own spelling ends with."""
    if len(before) != 1 or before[0][0] is not sre.LITERAL:
        return False
    matches = re.compile(re.escape(chr(before[0][1])), flags & re.IGNORECASE).fullmatch
    return not any(map(matches, _AMBIGUOUS))


def _is_inside(position: Any, before: bool, after: bool) -> bool:
    """Return whether a position may be another one than the end of the text that it is always true of."""
    if position in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
        return before
    return after if position in (sre.AT_END, sre.AT_END_STRING) else True


def _described(op: Any) -> str:
    if op is sre.AT:
        return r"^, $, \b or \B within a text"
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return "lookbehind for more than one character, or for one that is escaped or ends an escape,"
    return "a backreference"


def _character(op: Any, argument: Any, flags: int) -> str:
    """Rewrite what matches one character: those that JSON escapes become their escapes."""
    written = _class(op, argument)
    matches = re.compile(written, flags & (re.IGNORECASE | re.DOTALL | re.ASCII)).fullmatch
    escapes = [re.escape(escaped(each)) for each in _ESCAPED_CHARACTERS if matches(each)]
    if not escapes:
        return written
    # An escape is written in one way, also where the case of letters does not count.
    listed = f"(?-i:{'|'.join(escapes)})" if flags & re.IGNORECASE else "|".join(escapes)
    return f"(?:{listed})" if op is sre.LITERAL else f"(?:(?!{_ESCAPED}){written}|{listed})"


def _class(op: Any, argument: Any) -> str:
    if op is sre.ANY:
        return "."
    if op is sre.LITERAL:
        return re.escape(chr(argument)) if argument < 0x80 else _in_class(argument)
    if op is sre.NOT_LITERAL:
        return f"[^{_in_class(argument)}]"
    return f"[{''.join(_class_item(*each) for each in argument)}]"


def _class_item(op: Any, argument: Any) -> str:
    if op is sre.NEGATE:
        return "^"
    if op is sre.LITERAL:
        return _in_class(argument)
    if op is sre.RANGE:
        return f"{_in_class(argument[0])}-{_in_class(argument[1])}"
    return _CATEGORIES[argument]


def _in_class(code: int) -> str:
    return f"\\U{code:08x}"
