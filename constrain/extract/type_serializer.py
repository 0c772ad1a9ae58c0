"""Serializers that write values of Python types as their schema describes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationUnexpectedValue, SchemaSerializer

#: Keys of pydantic's core schemas whose values are or contain schemas of values.
_INNER = frozenset(
    """
    schema definitions choices fields items_schema keys_schema values_schema extras_schema steps
    json_schema python_schema lax_schema strict_schema computed_fields return_schema
    """.split()
)
_FIELDS = frozenset({"model-field", "dataclass-field", "typed-dict-field"})
#: Where the names and the form of other outputs than records are.
_OTHER_OUTPUTS = frozenset({"serialization_alias", "serialization_exclude", "serialization_exclude_if"})
#: Functions by which pydantic hides secrets.
_HIDING = frozenset({"_serialize_secret", "_serialize_secret_field"})
#: Name of the only member of an object that stands for a set, since sets have lost the order of their items.
_SET = "\0set"


def record_serializer(adapter: TypeAdapter[Any], *, is_plain: bool = False) -> SchemaSerializer:
    """Return a serializer that writes values in the form of :class:`~constrain.extract.type_schema.RecordSchema`.

    Fields have the names by which they are read, also those that other outputs exclude; model serializers do not run;
    secrets are written; decimals are numbers, unless a number would have other digits; durations have no years, which
    the format ``duration`` does not have beside days; and sets are objects, see :func:`set_items`.

    Args:
        adapter: the type.
        is_plain: whether the serializers of fields, and those in annotations, do not run either.
    """
    schema: Any = _written(_plain(adapter.core_schema) if is_plain else adapter.core_schema, is_by_alias=True)
    try:  # pydantic would take the serializers that models have already
        return SchemaSerializer(schema, _use_prebuilt=False)
    except TypeError:  # older versions have no such argument
        return SchemaSerializer(schema)


def set_items(dumped: Any) -> list[Any] | None:
    """Return the items of a set that a :func:`record_serializer` wrote, sorted; ``None`` for any other value."""
    if not isinstance(dumped, dict) or dumped.keys() != {_SET}:
        return None
    return sorted(dumped[_SET], key=lambda item: json.dumps(with_sorted_sets(item)))


def with_sorted_sets(dumped: Any) -> Any:
    """Return what a :func:`record_serializer` wrote, with the items of sets in the order of their JSON texts."""
    if (items := set_items(dumped)) is not None:
        return list(map(with_sorted_sets, items))
    if isinstance(dumped, dict):
        return {name: with_sorted_sets(member) for name, member in dumped.items()}
    return list(map(with_sorted_sets, dumped)) if isinstance(dumped, list) else dumped


def _written(node: Any, is_by_alias: bool) -> Any:
    """Return a core schema, or a collection of them, that serializes as is read."""
    if isinstance(node, (list, tuple)):
        return type(node)(_written(each, is_by_alias) for each in node)
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    if not isinstance(kind, str):  # fields or alternatives by name
        return {name: _written(child, is_by_alias) for name, child in node.items()}
    is_by_alias = (node.get("config") or {}).get("validate_by_alias", is_by_alias) is not False
    changed = {key: _written(value, is_by_alias) if key in _INNER else value for key, value in node.items()}
    if kind == "dict" and node.get("keys_schema", {}).get("type") in ("decimal", "timedelta"):
        changed["keys_schema"] = node["keys_schema"]  # names are texts, and stay as they are
    if kind in _FIELDS:
        return _as_read(changed, is_by_alias)
    if kind in ("model", "dataclass"):
        changed.pop("serialization", None)
    elif kind in ("set", "frozenset"):
        changed.setdefault("serialization", {"type": "function-wrap", "function": _as_object})
    elif kind == "timedelta":
        changed.setdefault("serialization", {"type": "function-wrap", "function": _in_days})
    elif kind == "decimal":
        changed.setdefault("serialization", {"type": "function-plain", "function": _as_number})
    elif _hides(node.get("serialization")):
        changed["serialization"] = {"type": "function-plain", "function": _revealed, "when_used": "unless-none"}
    return changed


def _plain(node: Any) -> Any:
    """Return a core schema, or a collection of them, without the serializers that are not pydantic's."""
    if isinstance(node, (list, tuple)):
        return type(node)(map(_plain, node))
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if key != "serialization" or not _is_of_user(value)}
    if not isinstance(node.get("type"), str):
        return {name: _plain(child) for name, child in kept.items()}
    return {key: _plain(value) if key in _INNER else value for key, value in kept.items()}


def _is_of_user(serialization: Any) -> bool:
    function = (serialization or {}).get("function")
    return function is not None and not getattr(function, "__module__", "").startswith("pydantic")


def _as_read(field: Mapping[str, Any], is_by_alias: bool) -> dict[str, Any]:
    """Return a field that is written under the name by which it is read, as the JSON Schema has it."""
    kept = {key: value for key, value in field.items() if key not in _OTHER_OUTPUTS}
    alias = field.get("validation_alias") if is_by_alias else None
    if isinstance(alias, list):  # several names, and paths that lead deeper: the first name
        alias = next((path[0] for path in alias if isinstance(path, list) and len(path) == 1), None)
    return {**kept, "serialization_alias": alias} if isinstance(alias, str) else kept


def _hides(serialization: Any) -> bool:
    function = (serialization or {}).get("function")
    return getattr(function, "__module__", "") == "pydantic.types" and getattr(function, "__name__", "") in _HIDING


def _revealed(secret: Any) -> Any:
    return secret.get_secret_value()


def _as_object(items: Any, write: Callable[[Any], Any]) -> dict[str, Any]:
    return {_SET: write(items)}


def _in_days(duration: Any, write: Callable[[Any], Any]) -> Any:
    """Write a duration, of which years are 365 days."""
    written = write(duration)
    if not isinstance(written, str) or not re.match(r"P\d+Y", written):
        return written
    days = timedelta(days=duration.days)
    return f"P{days.days}D" + (write(duration - days).removeprefix("P") if duration != days else "")


def _as_number(value: Any) -> int | float | str:
    """Return a decimal as the number that has the same value, or as a text if it has none."""
    if not isinstance(value, Decimal):
        raise PydanticSerializationUnexpectedValue(f"{value!r} is no decimal")  # a union tries the next alternative
    if value.as_tuple().exponent == 0:
        return int(value)
    number = float(value) if value.is_finite() else 0.0
    return number if Decimal(repr(number)) == value else str(value)
