"""JSON Schemas of Python types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from constrain.extract import type_patterns as patterns
from constrain.extract.subschemas import resolved, with_subschemas

#: Types of core schemas whose values no text is read as.
_UNREADABLE = frozenset("tuple list set frozenset dict none dataclass typed-dict named-tuple arguments".split())


class RecordSchema(GenerateJsonSchema):
    """Generates schemas for records that a model writes, rather than for JSON from anywhere.

    - Objects have only the fields of their type, unless the type allows others: pydantic would drop the others.
    - A field that may be ``None``, and is by default, is required: the model decides that a value is absent by writing
      ``null``, which it does more reliably than leaving the field out.
    - Decimals are numbers, with their limits of digits; pydantic would also accept any string.
    - The field by which a discriminated union tells its models apart is required, also where it has a default.
    - A field that is read from a path alone has no schema: pydantic would give it a name by which it is not read. Nor
      has a mapping whose keys are not read from the names that JSON has, such as one by tuples.
    """

    def generate(self, schema: core_schema.CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        written = super().generate(schema, mode)
        for union in [*_discriminated(written)]:
            for model in _models(union["oneOf"], written):
                _require(model, union["discriminator"]["propertyName"])
        return written

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        names = self._config.config_dict
        if _has_only_paths(schema) and not (names.get("populate_by_name") or names.get("validate_by_name")):
            reason = f"a field that is read from {schema['validation_alias']} alone: give it a name by AliasChoices"
            return self.handle_invalid_for_json_schema(schema, reason)
        return super().generate_inner(schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _closed(super().model_schema(schema))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _closed(super().typed_dict_schema(schema))

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        accepted = super().decimal_schema(schema)
        number = next((kind for kind in accepted.get("anyOf", ()) if kind.get("type") == "number"), accepted)
        limits = {key: limit for key, limit in _digit_limits(schema).items() if key not in number}
        return number | limits

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        keys: Any = schema.get("keys_schema", {"type": "any"})
        if not _is_read_from_text(keys):
            reason = f"a mapping by {keys['type']}: names in JSON are texts; give a list of models with key and value"
            return self.handle_invalid_for_json_schema(schema, reason)
        written = super().dict_schema(schema)
        if keys["type"] == "enum" and keys.get("sub_type") in ("int", "float"):  # pydantic lists them as numbers
            written["propertyNames"] = {"enum": [str(member.value) for member in keys["members"]]}
        return written

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        return self.handle_invalid_for_json_schema(schema, "a type, which has no form in JSON")

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,
    ) -> bool:
        return _is_none_by_default(field["schema"]) or super().field_is_required(field, total)


class ExactSchema(RecordSchema):
    """Restricts strings to those that the type reads, as far as that does not depend on the time of day.

    Pydantic's own schemas are wider: the schema of ``HttpUrl`` has the format ``uri``, for example.
    """

    def generate(self, schema: core_schema.CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return _exact(super().generate(schema, mode))

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        written = super().str_schema(schema)
        return _with(written, patterns.STRIPPED) if schema.get("strip_whitespace") else written

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        written = super().bytes_schema(schema)
        # Lengths of bytes are counted in UTF-8, those of strings in characters.
        return _with(written, patterns.ASCII) if "max_length" in schema else written

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        return _with(super().date_schema(schema), *patterns.date_bounds(schema))

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        if schema.get("tz_constraint") == "naive":
            return {"type": "string", "pattern": patterns.NAIVE_DATETIME}
        return super().datetime_schema(schema)

    def complex_schema(self, schema: core_schema.ComplexSchema) -> JsonSchemaValue:
        return _with(super().complex_schema(schema), patterns.COMPLEX)

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        return _with(super().url_schema(schema), patterns.url(schema.get("allowed_schemes")))

    def multi_host_url_schema(self, schema: core_schema.MultiHostUrlSchema) -> JsonSchemaValue:
        return _with(
            super().multi_host_url_schema(schema) | {"format": "uri"}, patterns.url(schema.get("allowed_schemes"))
        )

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        written = super().dict_schema(schema)
        key = patterns.KEYS.get(schema["keys_schema"]["type"]) if "keys_schema" in schema else None
        return {"propertyNames": {"pattern": key}} | written if key else written


def _with(schema: JsonSchemaValue, *required: str) -> JsonSchemaValue:
    """Return the schema of strings that match patterns as well; its own ``pattern`` stays."""
    return {**schema, "allOf": [{"pattern": pattern} for pattern in required]} if required else schema


def _exact(node: Mapping[str, Any]) -> JsonSchemaValue:
    """Replace patterns and formats whose types read less than JSON Schema allows, or that JSON Schema does not have."""
    changed = with_subschemas(node, lambda place, child: _exact(child))
    if (pattern := changed.get("pattern")) in patterns.PATTERNS:
        changed["pattern"] = patterns.PATTERNS[pattern]
    known = patterns.FORMATS.get(changed.get("format", ""))
    if known is None:
        return changed
    return {key: value for key, value in changed.items() if key != "format"} | known


def _digit_limits(schema: core_schema.DecimalSchema) -> JsonSchemaValue:
    """Return keywords for the numbers of digits that a decimal may have, which JSON Schema does not count."""
    limits: JsonSchemaValue = {}
    places, digits = schema.get("decimal_places"), schema.get("max_digits")
    if places is not None:
        limits["multipleOf"] = 10**-places
    if digits is not None:
        limits["exclusiveMaximum"] = 10 ** max(0, digits - (places or 0))
        limits["exclusiveMinimum"] = -limits["exclusiveMaximum"]
    return limits


def _closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def _discriminated(node: Any) -> Iterator[JsonSchemaValue]:
    """Yield the discriminated unions in a schema that name their field."""
    if isinstance(node, dict) and isinstance(node.get("oneOf"), list):
        discriminator = node.get("discriminator")
        if isinstance(discriminator, dict) and "propertyName" in discriminator:
            yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _discriminated(child)


def _models(choices: list[JsonSchemaValue], root: JsonSchemaValue) -> Iterator[JsonSchemaValue]:
    """Yield the schemas of the models of a union, which may have unions among its members."""
    for choice in choices:
        model = resolved(choice["$ref"], root) if "$ref" in choice else choice
        if model is not None:
            yield from _models(model["oneOf"], root) if "oneOf" in model else [model]


def _require(model: JsonSchemaValue, name: str) -> None:
    """Require a field of a model; the names of those that are required are in the order of declaration."""
    if name in (fields := model.get("properties", {})):
        required = {*model.get("required", ()), name}
        model["required"] = [field for field in fields if field in required]


def _has_only_paths(schema: Any) -> bool:
    """Whether a schema is that of a field without a name by which it is read."""
    alias = schema.get("validation_alias")
    if not isinstance(alias, list):
        return False
    paths = alias if isinstance(alias[0], list) else [alias]
    return all(len(path) > 1 for path in paths)


def _is_read_from_text(keys: Mapping[str, Any]) -> bool:
    """Whether pydantic reads at least one key of a type from the name of a member of an object."""
    kind = keys["type"]
    if kind == "model":
        return bool(keys.get("root_model")) and _is_read_from_text(keys["schema"])
    if kind in ("nullable", "default"):
        return _is_read_from_text(keys["schema"])
    if kind == "literal":
        return any(isinstance(each, str) for each in keys["expected"])
    if kind == "enum" and keys.get("sub_type") is None:
        return any(isinstance(member.value, str) for member in keys["members"])
    return kind not in _UNREADABLE


def _is_none_by_default(schema: Any) -> bool:
    """Whether ``None`` is the default of a field, and a valid value of it."""
    if schema["type"] != "default" or schema.get("default", ...) is not None:
        return False
    while "schema" in schema and schema["type"] != "nullable":
        schema = schema["schema"]
    return schema["type"] in ("nullable", "any", "none")
