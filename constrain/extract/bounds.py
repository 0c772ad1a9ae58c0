"""Default bounds of numbers and strings that a schema leaves unbounded, so that the model cannot repeat endlessly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrain.extract.pattern_bounds import bounds_length
from constrain.extract.subschemas import Place, with_subschemas

#: Maximum number of digits before the decimal point.
MAX_DIGITS = 15
#: Lower limit of the default ``maxLength`` of strings.
MIN_LENGTH = 256
#: Default ``maxLength`` of strings of an image: about a dense page.
IMAGE_LENGTH = 4096

_LIMIT = 10**MAX_DIGITS - 1
_LOW, _HIGH = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
#: Keywords that bound a string, as does a ``pattern`` that matches strings of limited length only.
_STRINGS = frozenset({"maxLength", "x-verbatim"})
#: Formats whose texts are short; those of others, such as ``uri``, may go on.
_SHORT_FORMATS = frozenset({"date", "date-time", "hostname", "idn-hostname", "ipv4", "ipv6", "time", "uuid"})
#: Six digits are the most in which no duration is too large for Python's ``timedelta``.
_DURATION = "^[^0-9]*([0-9]{1,6}[^0-9]+)*$"
#: Keywords whose subschemas do not narrow the whole schema when they are narrowed.
_CONDITIONS = frozenset({"not", "if", "contains", "propertyNames"})


def max_length(text: str) -> int:
    """Return the default ``maxLength`` of strings: twice the length of the text, rounded up to a power of two."""
    return max(MIN_LENGTH, 1 << (2 * len(text)).bit_length())


def bounded(schema: Any, length: int) -> Any:
    """Return a copy of a schema with default bounds.

    Numbers get a ``minimum`` and a ``maximum`` of 15 digits, strings a ``maxLength`` of ``length``, and durations a
    ``pattern`` for numbers of 6 digits. Existing bounds are kept, and subschemas of ``not``, ``if`` and ``contains``
    are left unchanged.
    """
    if not isinstance(schema, Mapping):
        return schema

    def change(place: Place, child: Mapping[str, Any]) -> Any:
        return child if place[0] in _CONDITIONS else bounded(child, length)

    node = with_subschemas(schema, change)
    if "enum" in node or "const" in node:
        return node
    kinds = node.get("type")
    kinds = {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else set()
    if kinds & {"integer", "number"}:
        node |= _number_bounds(node)
    if "string" in kinds and _STRINGS.isdisjoint(node) and not _has_bounding_pattern(node):
        node |= _string_bounds(node, length)
    return node


def _has_bounding_pattern(node: Mapping[str, Any]) -> bool:
    pattern = node.get("pattern")
    return isinstance(pattern, str) and bounds_length(pattern)


def _string_bounds(node: Mapping[str, Any], length: int) -> dict[str, Any]:
    """Return default bounds of strings that have none."""
    if node.get("format") in _SHORT_FORMATS:
        return {}
    if node.get("format") == "duration":
        others = node.get("allOf")
        return {"allOf": [*(others if isinstance(others, list) else []), {"pattern": _DURATION}]}
    return {"maxLength": max(length, node["minLength"]) if isinstance(node.get("minLength"), int) else length}


def _number_bounds(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return default bounds for the number bounds that a node lacks."""
    lows, highs = ([node[key] for key in keys if _is_number(node.get(key))] for keys in (_LOW, _HIGH))
    found: dict[str, Any] = {}
    if not lows and all(high >= -_LIMIT for high in highs):
        found["minimum"] = -_LIMIT
    if not highs and all(low <= _LIMIT for low in lows):
        found["maximum"] = _LIMIT
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
