"""Fields of formats, with their mistakes as errors with pointers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrain.errors import StructuralTagError


def check_fields(node: Mapping[str, Any], at: str, known: set[str], required: set[str]) -> None:
    """Check that an object has all required fields, and no unknown one.

    Raises:
        StructuralTagError: it has not.
    """
    if missing := sorted(required.difference(node)):
        raise StructuralTagError(f"{missing[0]!r} is missing", at)
    # Programs write out the fields that they leave at their defaults, which ask for nothing.
    if unknown := sorted(name for name in set(node).difference(known) if node[name] not in (None, False, [])):
        raise StructuralTagError(f"not known; {', '.join(sorted(known))} are", f"{at}/{unknown[0]}")


def text(node: Mapping[str, Any], name: str, at: str) -> str:
    """Return a field that is a text.

    Raises:
        StructuralTagError: it is none, or has a lone surrogate.
    """
    found = str(_field(node, name, at, str, "a text"))
    return _encodable(found, f"{at}/{name}")


def flag(node: Mapping[str, Any], name: str, at: str, default: bool = False) -> bool:
    """Return a field that is true or false.

    Raises:
        StructuralTagError: it is neither.
    """
    return bool(_field(node, name, at, bool, "true or false", default))


def count(node: Mapping[str, Any], name: str, at: str, least: int = 0) -> int:
    """Return a field that is a whole number, and at least as large as another.

    Raises:
        StructuralTagError: it is not.
    """
    value = int(_field(node, name, at, int, "a whole number"))
    if value < least:
        raise StructuralTagError(f"must be at least {least}", f"{at}/{name}")
    return value


def items(node: Mapping[str, Any], name: str, at: str) -> list[Any]:
    """Return a field that is a list.

    Raises:
        StructuralTagError: it is none.
    """
    return list(_field(node, name, at, list, "a list", []))


def filled(node: Mapping[str, Any], name: str, at: str, noun: str) -> list[Any]:
    """Return a field that is a list of at least one item.

    Raises:
        StructuralTagError: it is none, or empty.
    """
    found = items(node, name, at)
    if not found:
        raise StructuralTagError(f"at least one {noun} is needed", f"{at}/{name}")
    return found


def texts(node: Mapping[str, Any], name: str, at: str) -> list[str]:
    """Return a field that is a list of texts that are not empty.

    Raises:
        StructuralTagError: it is none, or a text has a lone surrogate.
    """
    found = _field(node, name, at, list, "a list of texts", [])
    if not all(isinstance(each, str) and each for each in found):
        raise StructuralTagError("must be a list of texts that are not empty", f"{at}/{name}")
    return [_encodable(each, f"{at}/{name}/{i}") for i, each in enumerate(found)]


def _encodable(text: str, at: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise StructuralTagError("has a lone surrogate, which is no character", at)
    return text


def _field(node: Mapping[str, Any], name: str, at: str, kind: type, wanted: str, default: Any = None) -> Any:
    value = node.get(name)
    value = default if value is None else value
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise StructuralTagError(f"must be {wanted}", f"{at}/{name}")
    return value
