"""Types of partial records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, core_schema

#: Keys of pydantic's core schemas whose values are or contain schemas of values.
_INNER = frozenset({"schema", "definitions", "choices", "fields", "items_schema", "values_schema"})
_VALIDATORS = frozenset({"function-before", "function-after", "function-wrap"})
#: Kinds of values that have parts.
_WHOLES = frozenset(
    "model dataclass typed-dict list set frozenset dict tuple union tagged-union definition-ref".split()
)

Schema = dict[str, Any]


def partial_validator(adapter: TypeAdapter[Any]) -> SchemaValidator:
    """Return a validator that makes parts of records into values of a type.

    Fields that a part does not have are ``None``, those of a ``TypedDict`` are missing. What expects a whole value does
    not run: minimum lengths of lists, and validators of models, lists and unions.
    """
    return SchemaValidator(_partial(adapter.core_schema))


def _partial(node: Any) -> Any:
    """Return a core schema, or a collection of them, for parts of the values."""
    if isinstance(node, (list, tuple)):
        return type(node)(map(_partial, node))
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    if not isinstance(kind, str):  # fields or alternatives by name
        return {name: _partial(child) for name, child in node.items()}
    if kind in ("model", "dataclass"):
        return _partial_object(node)
    changed = {key: _partial(value) if key in _INNER else value for key, value in node.items() if key != "min_length"}
    if kind == "typed-dict-field":
        changed["required"] = False
    if kind in _VALIDATORS and _is_whole(node["schema"]):
        return _named_as(node, changed["schema"])
    return changed


def _partial_object(node: Schema) -> Schema:
    """Return the schema of a model or a dataclass, as a dict without required keys that is made an object."""
    inner = node["schema"]
    while inner["type"] in _VALIDATORS:
        inner = inner["schema"]
    if node.get("root_model"):
        return _made(node, _partial(inner), lambda root: _model(node["cls"], {"root": root}))
    given = inner["fields"]
    fields = given if isinstance(given, dict) else {each["name"]: each for each in given}
    members = core_schema.typed_dict_schema(
        {name: _partial_field(field) for name, field in fields.items()},
        config=node.get("config"),
        extra_behavior=inner.get("extra_behavior"),
    )
    make = _model if node["type"] == "model" else _dataclass
    return _made(node, members, lambda values: make(node["cls"], values))


def _partial_field(field: Schema) -> core_schema.TypedDictField:
    schema = field["schema"]
    while schema["type"] == "default":
        schema = schema["schema"]
    alias = field.get("validation_alias")
    return core_schema.typed_dict_field(_partial(schema), required=False, validation_alias=alias)


def _made(node: Schema, schema: Any, make: Callable[[Any], Any]) -> Schema:
    return _named_as(node, core_schema.no_info_after_validator_function(make, schema))


def _named_as(node: Schema, schema: Any) -> Schema:
    """Return a schema with the name by which other schemas refer to ``node``."""
    return {**schema, "ref": node["ref"]} if "ref" in node else schema


def _is_whole(schema: Schema) -> bool:
    return schema["type"] in _WHOLES or ("schema" in schema and _is_whole(schema["schema"]))


def _model(cls: type[Any], values: dict[str, Any]) -> Any:
    """Make a model without its validators; ``model_construct`` would call ``model_post_init``."""
    model: Any = object.__new__(cls)
    extra = {name: value for name, value in values.items() if name not in cls.model_fields}
    object.__setattr__(model, "__dict__", {name: values.get(name) for name in cls.model_fields})
    object.__setattr__(model, "__pydantic_fields_set__", set(values))
    object.__setattr__(model, "__pydantic_extra__", extra if cls.model_config.get("extra") == "allow" else None)
    object.__setattr__(model, "__pydantic_private__", None)
    return model


def _dataclass(cls: type[Any], values: dict[str, Any]) -> Any:
    instance = object.__new__(cls)
    for field in dataclasses.fields(cls):
        object.__setattr__(instance, field.name, values.get(field.name))
    return instance
