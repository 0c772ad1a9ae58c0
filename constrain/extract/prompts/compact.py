"""The compact form of a JSON Schema, which prompts show to the model.

A schema reads much like a type of TypeScript::

    {"name": string, "due"?: date | null (day of payment), "items": [{"sku": /[A-Z]+/, "qty": integer 1..}]}

A string that is copied from the text is ``quote``, and a value that comes with a quote as its evidence ``evidence T``:
``"paid": evidence date | null``. In the record such a value is ``{"quote": "March 3rd, 2026", "value": "2026-03-03"}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from constrain.extract.subschemas import resolved

_ANY = "any"
_DEPTH = 12
_NODES = 2000
_CHOICES = ("anyOf", "oneOf")
#: Keywords of a union that do not hold for each of its alternatives.
_OF_THE_WHOLE = ("description", "title", "default", "x-evidence")


class Detail(NamedTuple):
    """How much of a schema is shown: the maximum numbers of options of an enum, and of characters of a description."""

    options: int
    description: int


#: Of the prompts that the built-in model was trained on.
BRIEF = Detail(60, 100)
#: For models with room in their context.
FULL = Detail(1000, 2000)


def describe(schema: Mapping[str, Any] | bool, detail: Detail = BRIEF) -> str:
    """Return the compact form of a JSON Schema, in one line.

    Every schema has one: what it cannot express is omitted, and recursion is cut.
    """
    try:
        return _described(json.dumps(schema), detail)
    except (TypeError, ValueError, RecursionError):  # it is not JSON, or too deep
        return _Renderer(schema, detail).render(schema, 0, ())


@lru_cache(maxsize=64)  # the prompts for many documents have the same schema
def _described(schema: str, detail: Detail) -> str:
    root = json.loads(schema)
    return _Renderer(root, detail).render(root, 0, ())


class _Renderer:
    """Renders the nodes of one schema; ``refs`` are the references being expanded, outermost first."""

    def __init__(self, root: Any, detail: Detail) -> None:
        self._root, self._detail = root, detail
        self._nodes = 0

    def render(self, node: Any, depth: int, refs: tuple[str, ...]) -> str:
        self._nodes += 1
        if not isinstance(node, Mapping) or depth > _DEPTH or self._nodes > _NODES:
            return "never" if node is False else _ANY
        node, refs = self._merged(node, refs)
        description = node.get("description")
        form = self._form(node, depth, refs)
        if node.get("x-evidence") is True:
            form = f"evidence ({form})" if _is_union(node) else f"evidence {form}"
        if isinstance(description, str) and description.strip():
            return f"{form} ({_shortened(description, self._detail.description)})"
        return form

    def _form(self, node: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> str:
        if "const" in node:
            return _literal(node["const"])
        if isinstance(node.get("enum"), list):
            limit = self._detail.options
            options = [_literal(option) for option in node["enum"][:limit]]
            return " | ".join(options + ["..."] * (len(node["enum"]) > limit)) or "never"
        for keyword in _CHOICES:
            if isinstance(node.get(keyword), list) and node[keyword]:
                return self._alternatives(node, keyword, depth, refs)
        kinds = node.get("type", _implied_type(node))
        if isinstance(kinds, list):
            return " | ".join(dict.fromkeys(self._typed(kind, node, depth, refs) for kind in kinds)) or "never"
        return self._typed(kinds, node, depth, refs)

    def _alternatives(self, node: Mapping[str, Any], keyword: str, depth: int, refs: tuple[str, ...]) -> str:
        common = {key: value for key, value in node.items() if key not in (keyword, *_OF_THE_WHOLE)}
        options: list[str] = []
        for option in node[keyword]:
            whole = {**common, **option} if isinstance(option, Mapping) else option
            options.append(self.render(whole, depth + 1, refs))
        return " | ".join(dict.fromkeys(options))

    def _typed(self, kind: Any, node: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> str:
        if kind == "object":
            return self._object(node, depth, refs)
        if kind == "array":
            return self._array(node, depth, refs)
        if kind == "string":
            return _string(node)
        if kind in ("integer", "number"):
            low = node.get("minimum", node.get("exclusiveMinimum"))
            return f"{kind}{_range(low, node.get('maximum', node.get('exclusiveMaximum')))}"
        return kind if kind in ("boolean", "null") else _ANY

    def _object(self, node: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> str:
        required = node.get("required")
        required = set(map(str, required)) if isinstance(required, list) else set()
        properties = node.get("properties")
        members = []
        for name, child in properties.items() if isinstance(properties, Mapping) else ():
            mark = "" if name in required else "?"
            members.append(f"{_literal(name)}{mark}: {self.render(child, depth + 1, refs)}")
        patterns = node.get("patternProperties")
        for pattern, child in patterns.items() if isinstance(patterns, Mapping) else ():
            members.append(f"/{pattern}/: {self.render(child, depth + 1, refs)}")
        if isinstance(node.get("additionalProperties"), Mapping):
            members.append(f"string: {self.render(node['additionalProperties'], depth + 1, refs)}")
        return "{" + ", ".join(members) + "}" if members else "object"

    def _array(self, node: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> str:
        items, first = node.get("items"), node.get("prefixItems")
        if isinstance(items, list):
            items, first = node.get("additionalItems"), items
        members = [self.render(child, depth + 1, refs) for child in first] if isinstance(first, list) else []
        if isinstance(items, Mapping):
            rest = self.render(items, depth + 1, refs)
            members.append(f"...{rest}" if members else rest)
        return f"[{', '.join(members) or _ANY}]{_range(node.get('minItems'), node.get('maxItems'))}"

    def _merged(self, node: Mapping[str, Any], refs: tuple[str, ...]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Return ``node`` merged with its ``$ref`` and ``allOf``; keywords of the node itself take precedence."""
        ref = node.get("$ref")
        if isinstance(ref, str):
            rest = {key: value for key, value in node.items() if key != "$ref"}
            target = None if ref in refs else resolved(ref, self._root)
            refs = (*refs, ref)
            return self._merged(_joined(rest, target) if isinstance(target, Mapping) else rest, refs)
        parts = node.get("allOf")
        if isinstance(parts, list):
            whole: Mapping[str, Any] = {key: value for key, value in node.items() if key != "allOf"}
            for part in parts:
                if isinstance(part, Mapping):
                    extra, refs = self._merged(part, refs)
                    whole = _joined(whole, extra)
            return whole, refs
        return node, refs


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge two schemas: properties and required names are combined, otherwise ``first`` takes precedence."""
    joined = {**second, **first}
    both = [part["properties"] for part in (first, second) if isinstance(part.get("properties"), Mapping)]
    if len(both) == 2:
        joined["properties"] = {**both[0], **{key: value for key, value in both[1].items() if key not in both[0]}}
    names = [part["required"] for part in (first, second) if isinstance(part.get("required"), list)]
    if len(names) == 2:
        joined["required"] = [*names[0], *names[1]]
    return joined


def _implied_type(node: Mapping[str, Any]) -> str:
    if any(key in node for key in ("properties", "patternProperties", "required", "additionalProperties")):
        return "object"
    if any(key in node for key in ("items", "prefixItems", "minItems", "maxItems")):
        return "array"
    if any(key in node for key in ("pattern", "format", "minLength", "maxLength")):
        return "string"
    return "number" if "minimum" in node or "maximum" in node else _ANY


def _is_union(node: Mapping[str, Any]) -> bool:
    return any(isinstance(node.get(key), list) and len(node[key]) > 1 for key in ("enum", "type", *_CHOICES))


def _string(node: Mapping[str, Any]) -> str:
    if "x-verbatim" in node:
        return "quote"
    if isinstance(node.get("pattern"), str):
        return f"/{node['pattern']}/"
    form = node["format"] if isinstance(node.get("format"), str) else "string"
    return f"{form}{_range(node.get('minLength'), node.get('maxLength'))}"


def _range(low: Any, high: Any) -> str:
    if low is None and high is None:
        return ""
    return f" {'' if low is None else low}..{'' if high is None else high}"


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shortened(description: str, limit: int) -> str:
    line = " ".join(description.split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."
