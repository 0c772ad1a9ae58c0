"""Documents written by hand, each with a schema and its record, unlike those that the generator makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Handwritten:
    """A document with its schema and the record that is right.

    Attributes:
        kind: what kind of document it is: the folder that it is in.
        name: name of its files, without suffix.
    """

    kind: str
    name: str
    text: str
    schema: dict[str, Any]
    record: Any


def read_handwritten(folder: Path) -> list[Handwritten]:
    """Read documents: ``KIND/NAME.txt`` with the text, and beside it ``KIND/NAME.json`` with schema and record."""
    return [_read(path) for path in sorted(folder.glob("*/*.txt"))]


def _read(path: Path) -> Handwritten:
    data = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    return Handwritten(path.parent.name, path.stem, text, data["schema"], data["record"])


def leaves(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the scalars and empty lists of a record, each with its schema: that of its values other than null.

    Args:
        value: the record, or a part of it; matches ``schema``.
        schema: its schema, of the keywords that the documents here use.
        root: the schema of the whole record.
    """
    schema = _resolved(schema, root)
    if isinstance(value, dict):
        for name, member in value.items():
            yield from leaves(member, schema["properties"][name], root)
    elif isinstance(value, list) and value:
        for item in value:
            yield from leaves(item, schema["items"], root)
    else:
        yield value, schema


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema or "anyOf" in schema:
        name = schema.get("$ref", "").rpartition("/")[2]
        schema = root["$defs"][name] if name else schema["anyOf"][0]
    return schema
