"""Targets of extraction: a JSON Schema that constrains the output, and the Python type that it is parsed into."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any, Generic, NoReturn, TypeVar

import jsonschema_rs
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from constrain.arguments import check_text, check_type
from constrain.engine.pointers import pointer
from constrain.errors import ArgumentError, ExtractionError, SchemaError

T = TypeVar("T")


class Target(Generic[T]):
    """A schema, and the type that matching documents are parsed into.

    Attributes:
        schema: the JSON Schema.

    Raises:
        SchemaError: the schema is not valid under the meta-schema that it names (by default draft 2020-12), or has an
            external reference; reports where.
    """

    def __init__(self, schema: Mapping[str, Any], adapter: TypeAdapter[T] | None = None) -> None:
        check_type("the schema", schema, Mapping, "a dict", SchemaError)
        self.schema = dict(schema)
        self._adapter = adapter
        self._validator = _validator(self.schema)

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
            return cls(what)
        if isinstance(what, (str, bytes, bool, FunctionType, BuiltinFunctionType)) or what is None:
            raise SchemaError(f"a schema is a dict or a type, not {what!r}")
        try:
            adapter = TypeAdapter(what)
            return cls(adapter.json_schema(schema_generator=_ClosedObjects), adapter)
        except PydanticUserError as error:
            raise SchemaError(f"{what!r} has no JSON Schema: {error.message}") from error

    def write(self, value: Any) -> str:
        """Return a record as the JSON text that a model would write; it is not validated.

        Args:
            value: a value of the type, or JSON.

        Raises:
            ArgumentError: the value is neither.
        """
        try:
            if self._adapter is not None:
                value = self._adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, RecursionError) as error:
            raise ArgumentError(f"the record cannot be written as JSON: {error}") from error

    def read(self, text: str) -> tuple[Any, T]:
        """Parse and validate a document.

        Returns:
            The parsed JSON, and the value made from it.

        Raises:
            ArgumentError: ``text`` is not a string.
            ExtractionError: the text is not JSON, does not match the schema, or is rejected by the type.
        """
        check_text("text", text)
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ExtractionError(f"the record is not JSON: {error}", text) from error
        for violation in self._validator.iter_errors(document):
            where = pointer(violation.instance_path)
            raise ExtractionError(f"the record does not match the schema at #{where}: {violation.message}", text)
        if self._adapter is None:
            return document, document
        try:
            return document, self._adapter.validate_json(text)
        except ValidationError as error:
            raise ExtractionError(f"the record is refused by its type: {error}", text) from error


def _validator(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True, retriever=_refuse_to_fetch)
    except jsonschema_rs.ValidationError as error:
        keyword = next((part for part in reversed(error.instance_path) if isinstance(part, str)), None)
        reason = f"not a valid JSON Schema: {error.message}"
        raise SchemaError(reason, pointer(error.instance_path), keyword) from error
    except ValueError as error:
        raise SchemaError(f"not a JSON Schema: {error}") from error


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise LookupError(f"{uri} is not part of the schema, and nothing is fetched")


class _ClosedObjects(GenerateJsonSchema):
    """Generates schemas in which objects have only the fields of their type, unless the type allows others.

    For validation pydantic leaves the objects of most types open, and drops unknown fields. A model that generates the
    object should not spend tokens on fields that will be dropped.
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
