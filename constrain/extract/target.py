"""What a record has to be: a JSON Schema to decode under, and the Python type to read it into."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

import jsonschema
import jsonschema_rs
from jsonschema.exceptions import SchemaError as InvalidSchema
from jsonschema.validators import validator_for
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from constrain.errors import ExtractionError, SchemaError

T = TypeVar("T")


class Target(Generic[T]):
    """A schema, and how a document that matches it becomes a value.

    Attributes:
        schema: the JSON Schema.
    """

    def __init__(self, schema: Mapping[str, Any], adapter: TypeAdapter[T] | None = None) -> None:
        self.schema = dict(schema)
        self._adapter = adapter

    @classmethod
    def of(cls, what: Any) -> Target[Any]:
        """Return the target that ``what`` describes.

        Args:
            what: a JSON Schema as a dict, a target, or any type that pydantic can read from JSON: a model, a dataclass,
                a TypedDict, a Literal, an Enum, a union, ``list[...]`` and so on.

        Raises:
            SchemaError: the dict is not a valid JSON Schema, or the type has no schema.
        """
        if isinstance(what, Target):
            return what
        if isinstance(what, Mapping):
            check_schema(what)
            return cls(what)
        if isinstance(what, (str, bytes, bool)) or what is None:
            raise SchemaError(f"a schema is a dict or a type, not {what!r}")
        try:
            adapter = TypeAdapter(what)
            return cls(adapter.json_schema(schema_generator=_ClosedObjects), adapter)
        except PydanticUserError as error:
            raise SchemaError(f"{what!r} has no JSON Schema: {error.message}") from error

    def read(self, text: str) -> tuple[Any, T]:
        """Parse and validate a document.

        Returns:
            The parsed JSON, and the value made from it.

        Raises:
            ExtractionError: the text is not JSON, does not match the schema, or is refused by the type.
        """
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ExtractionError(f"the record is not JSON: {error}", text) from error
        for violation in self._validator.iter_errors(document):
            where = _pointer(violation.instance_path)
            raise ExtractionError(f"the record does not match the schema at #{where}: {violation.message}", text)
        if self._adapter is None:
            return document, document
        try:
            return document, self._adapter.validate_json(text)
        except ValidationError as error:
            raise ExtractionError(f"the record is refused by its type: {error}", text) from error

    @cached_property
    def _validator(self) -> jsonschema_rs.Validator:
        return jsonschema_rs.validator_for(self.schema, validate_formats=True)


def check_schema(schema: Mapping[str, Any]) -> None:
    """Check a schema against the meta-schema that it names (draft 2020-12 where it names none).

    Raises:
        SchemaError: it is not valid; says where.
    """
    dialect = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        dialect.check_schema(schema)
    except InvalidSchema as error:
        pointer = _pointer(error.absolute_path)
        keyword = next((part for part in reversed(error.absolute_path) if isinstance(part, str)), None)
        raise SchemaError(f"not a valid JSON Schema: {error.message}", pointer, keyword) from error


def _pointer(path: Iterable[str | int]) -> str:
    """Return a path as a JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


class _ClosedObjects(GenerateJsonSchema):
    """Schemas in which an object has the fields of its type and no others, unless the type asks for others.

    For validation pydantic leaves the objects of most types open, and drops what it does not know. A model that is to
    write the object should not spend tokens on what will be dropped.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _closed(super().model_schema(schema))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _closed(super().typed_dict_schema(schema))


def _closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema
