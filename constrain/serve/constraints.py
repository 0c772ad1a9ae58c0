"""The constraint of a request, in whichever of the known dialects it is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from constrain.engine import DUMPS_LAYOUT, JsonLayout, Vocabulary
from constrain.serve.errors import APIError, pointer
from constrain.serve.formats import OutputFormat, alternatives
from constrain.serve.protocol.fields import ConstraintFields
from constrain.serve.structural_tags import compiled_pattern, lark_text, structural_tag

#: Names of schemas.
_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")

#: Returns the format for the value of a field and the pointer to it.
_Reader = Callable[[Any, str, Vocabulary], OutputFormat | None]


def read_format(request: ConstraintFields, vocabulary: Vocabulary) -> OutputFormat | None:
    """Return the format that a request asks for; ``None`` for any text.

    Args:
        request: the request.
        vocabulary: of the model, whose special tokens structural tags may name.

    Raises:
        APIError: there are several constraints, or one is malformed or of a kind that this server does not know.
    """
    found: list[OutputFormat] = []
    for name, reader in _READERS.items():
        value = getattr(request, name)
        format = None if value is None else reader(value, pointer(name), vocabulary)
        if format is not None:
            found.append(format)
    if len(found) > 1:
        first, second = found[0].pointer, found[1].pointer
        raise APIError(f"{second}: {first} is a constraint already; give one", param=second, code="several_constraints")
    return found[0] if found else None


def response_format(
    value: Mapping[str, Any], at: str, vocabulary: Vocabulary, *, is_flat: bool = False
) -> OutputFormat | None:
    """Return the format of a ``response_format``, of OpenAI and others; ``None`` for any text.

    Args:
        value: the format.
        at: JSON pointer to it.
        vocabulary: of the model.
        is_flat: whether the name and the schema are fields of the format itself, as in ``text.format`` of OpenAI.

    Raises:
        APIError: it is malformed, or of a kind that this server does not know.
    """
    value = _given(value)
    kind = value.get("type")
    if kind == "text":
        _only(value, at, "type")
        return None
    if kind == "json_object":
        _only(value, at, "type", "schema")
        return _schema(value.get("schema", {"type": "object"}), f"{at}/schema", vocabulary)
    if kind == "json_schema":
        return _named_schema(value, at, vocabulary, is_flat)
    if kind == "structural_tag":
        return structural_tag(value, at, vocabulary)
    if kind in ("regex", "grammar"):
        return _pattern_or_grammar(value, at, vocabulary)
    known = "text, json_object, json_schema, structural_tag, regex and grammar"
    raise APIError(f"{at}/type: this server knows {known}, not {kind!r}", param=f"{at}/type", code="invalid_value")


def text_format(value: Mapping[str, Any], at: str, vocabulary: Vocabulary) -> OutputFormat | None:
    """Return the format of ``text.format``; as :func:`response_format`."""
    return response_format(value, at, vocabulary, is_flat=True)


def _named_schema(value: Mapping[str, Any], at: str, vocabulary: Vocabulary, is_flat: bool) -> OutputFormat:
    """Read ``{"json_schema": {"name", "schema", "strict"}}``, or that without its outer level, as for responses.

    Others than OpenAI have no outer level in ``response_format``, and no name there.
    """
    needs_name = is_flat or "schema" not in value
    if not is_flat and "schema" not in value:
        _only(value, at, "type", "json_schema")
        at = f"{at}/json_schema"
        value = _given(_object(value.get("json_schema"), at))
    _only(value, at, "type", "name", "description", "schema", "strict")
    name = value.get("name")
    if (needs_name or name is not None) and not (isinstance(name, str) and _NAME.fullmatch(name)):
        message = f"{at}/name: must be a text of 1 to 64 letters, digits, _ and -"
        raise APIError(message, param=f"{at}/name", code="invalid_value")
    for field, kind in (("description", str), ("strict", bool)):
        if not isinstance(value.get(field, kind()), kind):
            raise APIError(f"{at}/{field}: must be a {kind.__name__}", param=f"{at}/{field}", code="invalid_value")
    if "schema" not in value:
        raise APIError(f"{at}/schema: the schema is missing", param=f"{at}/schema", code="invalid_value")
    return _schema(value["schema"], f"{at}/schema", vocabulary)


def _pattern_or_grammar(value: Mapping[str, Any], at: str, vocabulary: Vocabulary) -> OutputFormat:
    kind = value["type"]
    names = ("value", "pattern" if kind == "regex" else "grammar")
    _only(value, at, "type", *names)
    given = [name for name in names if isinstance(value.get(name), str)]
    if len(given) != 1:
        raise APIError(f"{at}: its text is missing", param=at, code="invalid_value")
    reader = _regex if kind == "regex" else _grammar
    return reader(value[given[0]], at + pointer(given[0]), vocabulary)


def _structured_outputs(value: Any, at: str, vocabulary: Vocabulary) -> OutputFormat | None:
    given = {name: each for name, each in value if each is not None and each is not False}
    is_compact = given.pop("disable_any_whitespace", False)
    if len(given) != 1:
        code = "several_constraints" if given else "invalid_value"
        raise APIError(f"{at}: give exactly one constraint", param=at, code=code)
    [(name, each)] = given.items()
    name = name.rstrip("_")
    if is_compact:
        return _compact(name, each, at, vocabulary)
    return _STRUCTURED_READERS[name](each, at + pointer(name), vocabulary)


def _compact(name: str, value: Any, at: str, vocabulary: Vocabulary) -> OutputFormat:
    """Return the format of a constraint whose JSON is written without white space."""
    layout = replace(DUMPS_LAYOUT, whitespace="compact")
    if name == "structural_tag":
        return _structural_tag(value, f"{at}/structural_tag", vocabulary, layout)
    if name not in ("json", "json_object"):
        field = f"{at}/disable_any_whitespace"
        raise APIError(
            f"{field}: is for json, json_object and structural_tag, not for {name}", param=field, code="invalid_value"
        )
    reader = _schema if name == "json" else _json_object
    return replace(reader(value, at + pointer(name), vocabulary), layout=layout)


def _schema(value: Any, at: str, vocabulary: Vocabulary) -> OutputFormat:
    if isinstance(value, str):
        value = _parsed(value, at)
    if not isinstance(value, (dict, bool)):
        raise APIError(f"{at}: a JSON Schema is an object, true or false", param=at, code="invalid_value")
    return OutputFormat(value, pointer=at)


def _json_object(value: Any, at: str, vocabulary: Vocabulary) -> OutputFormat:
    return OutputFormat({"type": "object"}, pointer=at)


def _regex(value: Any, at: str, vocabulary: Vocabulary) -> OutputFormat:
    return OutputFormat(compiled_pattern(value, at), pointer=at)


def _choice(value: Any, at: str, vocabulary: Vocabulary) -> OutputFormat:
    if not value:
        raise APIError(f"{at}: there is nothing to choose from", param=at, code="invalid_value")
    return OutputFormat(alternatives(value), pointer=at)


def _grammar(value: Any, at: str, vocabulary: Vocabulary) -> OutputFormat:
    return OutputFormat(lark_text(value, at), pointer=at)


def _structural_tag(value: Any, at: str, vocabulary: Vocabulary, layout: JsonLayout = DUMPS_LAYOUT) -> OutputFormat:
    value = _parsed(value, at) if isinstance(value, str) else value
    return structural_tag(_object(value, at), at, vocabulary, layout)


def _parsed(text: str, at: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise APIError(f"{at}: not JSON: {error}", param=at, code="invalid_value") from error


def _given(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not null: those count as not given."""
    return {name: each for name, each in value.items() if each is not None}


def _object(value: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise APIError(f"{at}: must be an object", param=at, code="invalid_value")
    return value


def _only(value: Mapping[str, Any], at: str, *known: str) -> None:
    """Refuse unknown fields, which may have been meant as constraints."""
    for name in value:
        if name not in known:
            field = at + pointer(name)
            raise APIError(f"{field}: this server does not know the field", param=field, code="unknown_field")


_STRUCTURED_READERS: dict[str, _Reader] = {
    "json": _schema,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
}

_READERS: dict[str, _Reader] = {
    "response_format": response_format,
    "structured_outputs": _structured_outputs,
    "guided_json": _schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "json_schema": _schema,
    "regex": _regex,
    "ebnf": _grammar,
    "structural_tag": _structural_tag,
    "grammar": _grammar,
    "regex_pattern": _regex,
    "grammar_string": _grammar,
}
