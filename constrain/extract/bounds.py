"""Default bounds of numbers and strings that a schema leaves unbounded, so that a digit or a word cannot run on."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

#: Integers have at most this many digits.
MAX_DIGITS = 15
#: Numbers have at most this many decimals.
MAX_DECIMALS = 9
#: Strings may be this long, however short the text is.
MIN_LENGTH = 256

_LIMIT = 10**MAX_DIGITS - 1
_STEP = Decimal(1).scaleb(-MAX_DECIMALS)
_LOW, _HIGH = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
#: Keywords that bound a string.
_STRINGS = frozenset({"maxLength", "pattern", "format", "x-verbatim"})
#: Keywords whose value is a schema, a list of schemas, or schemas by name, of which narrower ones make a narrower whole.
_ONE = ("items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "then", "else")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")


def max_length(text: str) -> int:
    """The default length of strings that are extracted from a text: twice its own, rounded up to a power of two."""
    return max(MIN_LENGTH, 1 << (2 * len(text)).bit_length())


def bounded(schema: Any, length: int) -> Any:
    """A copy of a schema with default bounds.

    Integers get ``minimum`` and ``maximum`` of 15 digits; numbers these too, and at most 9 decimals; strings
    ``length`` characters. A bound that the schema has is kept, and so are all that it says under ``not``, ``if`` and
    ``contains``.
    """
    if not isinstance(schema, Mapping):
        return schema
    node = dict(schema)
    for keyword in _ONE:
        if isinstance(node.get(keyword), Mapping):
            node[keyword] = bounded(node[keyword], length)
    for keyword in _LISTS:
        if isinstance(node.get(keyword), list):
            node[keyword] = [bounded(child, length) for child in node[keyword]]
    for keyword in _NAMED:
        if isinstance(node.get(keyword), Mapping):
            node[keyword] = {name: bounded(child, length) for name, child in node[keyword].items()}
    if "enum" in node or "const" in node:
        return node
    kinds = node.get("type")
    kinds = {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else set()
    if kinds & {"integer", "number"}:
        node |= _number_bounds(node, "number" in kinds)
    if "string" in kinds and _STRINGS.isdisjoint(node):
        node["maxLength"] = max(length, node["minLength"]) if isinstance(node.get("minLength"), int) else length
    return node


def _number_bounds(node: Mapping[str, Any], has_decimals: bool) -> dict[str, Any]:
    """The bounds that numbers of a node lack."""
    lows, highs = ([node[key] for key in keys if _is_number(node.get(key))] for keys in (_LOW, _HIGH))
    found: dict[str, Any] = {}
    if not lows and all(high >= -_LIMIT for high in highs):
        found["minimum"] = -_LIMIT
    if not highs and all(low <= _LIMIT for low in lows):
        found["maximum"] = _LIMIT
    if has_decimals and "multipleOf" not in node and _are_coarse([*lows, *highs]):
        found["multipleOf"] = float(_STEP)
    return found


def _are_coarse(bounds: list[Any]) -> bool:
    """Whether bounds have decimals to spare, and differ by as much: there are numbers of few decimals between them."""
    try:
        steps = {Decimal(str(bound)) / (_STEP * 1000) for bound in bounds}
        return all(step == step.to_integral_value() for step in steps)
    except InvalidOperation:
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
