"""Structural tags as SGLang writes them: functions without parameters have no schema."""

from __future__ import annotations

import json
from typing import Any

#: Formats that have a schema.
_WITH_SCHEMA = ("json_schema", "qwen_xml_parameter")


def with_schemas(text: str) -> str:
    """Return the JSON text of a structural tag, with a schema for any JSON where one is missing or null."""
    try:
        return json.dumps(_with_schemas(json.loads(text)))
    except (ValueError, RecursionError):
        return text  # the compiler says what is wrong


def _with_schemas(tag: Any) -> Any:
    if not isinstance(tag, dict):
        return tag
    if isinstance(tag.get("structures"), list):
        tag["structures"] = [_with_schema(each, "schema") for each in tag["structures"]]
    if "format" in tag:
        tag["format"] = _completed(tag["format"])
    return tag


def _completed(node: Any) -> Any:
    if isinstance(node, list):
        return [_completed(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {name: value if name == "json_schema" else _completed(value) for name, value in node.items()}
    return _with_schema(found, "json_schema") if found.get("type") in _WITH_SCHEMA else found


def _with_schema(node: Any, name: str) -> Any:
    return {**node, name: {}} if isinstance(node, dict) and node.get(name) is None else node
