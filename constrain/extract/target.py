"""Targets of extraction: a JSON Schema that constrains the output, and the Python type that it is parsed into."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from types import BuiltinFunctionType, FunctionType
from typing import Any, Generic, NoReturn, TypeVar, get_origin

import jsonschema_rs
from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaSerializer

from constrain.arguments import check_text, check_type
from constrain.engine.pointers import pointer
from constrain.errors import ArgumentError, ExtractionError, SchemaError
from constrain.extract.bounds import bounded
from constrain.extract.evidence import EVIDENCE, VERBATIM, Notes, Quotation, with_quotes, without_quotes
from constrain.extract.schema_numbers import check_numbers
from constrain.extract.subschemas import foreign_values, references
from constrain.extract.type_schema import ExactSchema, RecordSchema
from constrain.extract.type_serializer import record_serializer, with_sorted_sets

T = TypeVar("T")

#: Patterns may be as large as the engine can compile; by default, repetitions of 100,000 are refused.
_PATTERNS = jsonschema_rs.FancyRegexOptions(size_limit=1 << 30, dfa_size_limit=1 << 26)
_KEYWORDS = frozenset({EVIDENCE, VERBATIM})
_NO_TYPES = (str, bytes, int, float, list, tuple, set, FunctionType, BuiltinFunctionType)
_TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")


@dataclass(frozen=True)
class Reading(Generic[T]):
    """A record as it was read.

    Attributes:
        json: the record as parsed JSON, without the quotes that are evidence.
        value: the value made from it.
        quotations: its quotes, in order.
    """

    json: Any
    value: T
    quotations: list[Quotation] = field(default_factory=list)


class Target(Generic[T]):
    """A schema, and the type that matching documents are parsed into.

    Attributes:
        schema: the JSON Schema of records, which the prompt contains.
        exact_schema: ``schema`` with patterns that exclude strings which the type refuses.
        output_schema: the JSON Schema of what the model writes: where ``exact_schema`` asks for evidence, it has an
            object of quote and value.
        adapter: the type; ``None`` if the schema was given as a dict.
        has_quotes: whether ``output_schema`` copies strings from the document.

    Raises:
        SchemaError: the schema is not valid under the meta-schema that it names (by default draft 2020-12), or has an
            external reference; reports where.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        adapter: TypeAdapter[T] | None = None,
        exact_schema: Mapping[str, Any] | None = None,
    ) -> None:
        check_type("the schema", schema, Mapping, "a dict", SchemaError)
        self.schema = dict(schema)
        self.exact_schema = self.schema if exact_schema is None else dict(exact_schema)
        self.adapter = adapter
        with _limited_depth():
            check_numbers(schema)
            self._validator = _validator(self.exact_schema)
            self.output_schema = with_quotes(self.exact_schema)
            is_same = self.output_schema == self.exact_schema
            self._output_validator = self._validator if is_same else _validator(self.output_schema)
            written = json.dumps(self.output_schema)
        self._bounded: dict[int, dict[str, Any]] = {}
        self._has_evidence, self.has_quotes = f'"{EVIDENCE}"' in written, f'"{VERBATIM}"' in written

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
        if isinstance(what, _NO_TYPES) or what is None:
            hint = "; json.loads parses one from a text" if isinstance(what, str) else ""
            raise SchemaError(f"a schema is a dict or a type, not {what!r}{hint}")
        if not isinstance(what, type) and (isinstance(what, BaseModel) or is_dataclass(what)):
            raise SchemaError(f"give the type {type(what).__name__} itself, not a value of it: {what!r}")
        try:
            adapter = TypeAdapter(what)
            schema, exact = (adapter.json_schema(schema_generator=each) for each in (RecordSchema, ExactSchema))
            return cls(schema, adapter, exact)
        except PydanticUserError as error:
            raise SchemaError(f"{what!r} has no JSON Schema: {_why_not(error)}") from error

    def bounded_schema(self, length: int) -> dict[str, Any]:
        """Return ``output_schema`` with the default bounds of :mod:`constrain.extract.bounds`."""
        if length not in self._bounded:
            with _limited_depth():
                self._bounded[length] = bounded(self.output_schema, length)
        return self._bounded[length]

    def write(self, value: Any) -> str:
        """Return a record as the JSON text that a model would write; it is not validated.

        If an equal value is not read from what the serializers of fields write, they do not run.

        Args:
            value: a value of the type, or JSON.

        Raises:
            ArgumentError: the value is neither.
        """
        try:
            written = self._written(value, self._serializer)
        except (ValueError, TypeError, RecursionError) as error:
            raise ArgumentError(f"the record cannot be written as JSON: {error}") from error
        if self.adapter is None or self._is_read_as(value, written):
            return written
        with suppress(ValueError, TypeError, RecursionError):
            plain = self._written(value, record_serializer(self.adapter, is_plain=True))
            return plain if self._is_read_as(value, plain) else written
        return written

    def _is_read_as(self, value: Any, text: str) -> bool:
        """Whether an equal value is read from a text."""
        try:
            return bool(self.read(text).value == value)
        except Exception:  # of comparisons, which are not ours
            return False

    def read(self, text: str) -> Reading[T]:
        """Parse and validate a record.

        Args:
            text: what the model wrote, JSON that matches ``output_schema``.

        Raises:
            ArgumentError: ``text`` is not a string.
            ExtractionError: the text is not JSON, does not match the schema, or is rejected by the type.
        """
        check_text("text", text)
        try:
            written = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ExtractionError(f"the record is not JSON: {error}", text) from error
        _check(self._output_validator, written, text)
        record, quotations = self.without_quotes(written, written)
        if self._has_evidence:
            _check(self._validator, record, text)
            text = json.dumps(record)
        return Reading(record, self._value(record, text), quotations)

    def value_of(self, record: Any) -> T:
        """Validate a record, parsed JSON that should match ``schema``, and return the value that is made from it.

        Raises:
            ExtractionError: the record does not match the schema, or is rejected by the type.
        """
        text = json.dumps(record, ensure_ascii=False)
        _check(self._validator, record, text)
        return self._value(record, text)

    def _value(self, record: Any, text: str) -> T:
        """Make the value of a record, of which ``text`` is the JSON."""
        if self.adapter is None:
            value: T = record
            return value
        try:
            return self.adapter.validate_json(text)
        except ValidationError as error:
            raise ExtractionError(f"the record is refused by its type {_reasons(error)}", text) from error
        except (Exception, SystemExit) as error:  # validators are not ours, and may raise anything
            raise ExtractionError(f"a validator of the type has failed by {_described(error)}", text) from error

    def violations(self, record: Any) -> list[tuple[str | int, ...]]:
        """Return the paths of the values of a record that do not match the schema."""
        return [tuple(error.instance_path) for error in self._validator.iter_errors(record)]

    def dump(self, value: T) -> Any:
        """Return a value as JSON in the form of ``schema``, with the changes that validators of the type made.

        Fields have the names that the schema has. Items of sets are in the order of their JSON texts.

        Raises:
            ExtractionError: the value has no JSON form.
        """
        return value if self.adapter is None else with_sorted_sets(self.dump_unordered(value))

    def dump_unordered(self, value: T) -> Any:
        """Return a value as :meth:`dump` does, but sets as in :func:`~constrain.extract.type_serializer.set_items`."""
        try:
            return json.loads(_text(_dumped(value, self._serializer)))
        except (ValueError, TypeError, RecursionError) as error:
            raise ExtractionError(f"the record cannot be written as JSON: {error}") from error

    def _written(self, value: Any, serializer: SchemaSerializer | None) -> str:
        return _text(with_sorted_sets(_dumped(value, serializer, round_trip=True)))

    @cached_property
    def _serializer(self) -> SchemaSerializer | None:
        return None if self.adapter is None else record_serializer(self.adapter)

    def without_quotes(self, written: Any, whole: Any) -> tuple[Any, list[Quotation]]:
        """Return the record in a part of what the model wrote, and its quotes, in order.

        Args:
            written: the part.
            whole: the record that contains it; matches ``output_schema``.
        """
        return without_quotes(written, _notes(self._output_validator, whole)) if self.has_quotes else (written, [])


def _dumped(value: Any, serializer: SchemaSerializer | None, round_trip: bool = False) -> Any:
    """Return a value as JSON with marks for sets; with ``round_trip`` without computed fields, to be read again."""
    if serializer is None:
        return value
    return serializer.to_python(value, mode="json", by_alias=True, round_trip=round_trip, warnings=False)


def _why_not(error: PydanticUserError) -> str:
    """Return why a type has no schema. To allow arbitrary types, as pydantic advises, would give none either."""
    reason, *_ = error.message.splitlines()
    if unknown := re.fullmatch(r"Unable to generate pydantic-core schema for (.*)\. Set `arbitrary_types_.*", reason):
        return f"pydantic does not know {unknown[1]}; give a model, a dataclass or a TypedDict in its place"
    return reason


@contextmanager
def _limited_depth() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error


def _text(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def _check(validator: jsonschema_rs.Validator, record: Any, text: str) -> None:
    for violation in validator.iter_errors(record):
        where = pointer(violation.instance_path)
        raise ExtractionError(f"the record does not match the schema at #{where}: {_cut(violation.message)}", text)


def _cut(message: str) -> str:
    """Return a message without its middle if it is long: it may quote a list of any length, or a pattern."""
    return message if len(message) <= 400 else f"{message[:250]} ... {message[-100:]}"


def _reasons(error: ValidationError) -> str:
    """Return the errors of a type and their paths in one line."""
    return "; ".join(f"at #{pointer(each['loc'])}: {each['msg']}" for each in error.errors(include_url=False))


def _described(error: BaseException) -> str:
    """Return an error that a validator raised, and the line of the program that did so."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno}, in {place.name})"


def _notes(validator: jsonschema_rs.Validator, record: Any) -> Notes:
    """Return the annotations of those values of a record that are quotes or have evidence, by JSON pointer."""
    notes: dict[str, dict[str, Any]] = {}
    for unit in validator.evaluate(record).annotations():
        annotations = unit["annotations"]
        if isinstance(annotations, dict) and not _KEYWORDS.isdisjoint(annotations):
            where = unit["instanceLocation"]
            notes[where] = {**notes.get(where, {}), **annotations}
    return notes


def _validator(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(
            schema, validate_formats=True, retriever=_refuse_to_fetch, pattern_options=_PATTERNS
        )
    except jsonschema_rs.ValidationError as error:
        if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
            raise _unresolved(schema, error.message) from error
        path = list(error.instance_path)
        end = max((index for index, part in enumerate(path) if isinstance(part, str)), default=None)
        keyword = None if end is None else str(path[end])
        raise SchemaError(f"not a valid JSON Schema: {_message(error)}", pointer(path[:end]), keyword) from error
    except ValueError as error:
        for place, value in foreign_values(schema):
            raise SchemaError(_no_json(value), pointer(place)) from error
        raise SchemaError(f"not a JSON Schema: {error}") from error


def _no_json(value: Any) -> str:
    if not isinstance(value, type) and get_origin(value) is None:
        return f"{value!r} is no JSON"
    return (
        f'{value!r} is a Python type: write {{"type": ...}}, or give a Pydantic model or a dataclass with such fields'
    )


def _unresolved(schema: Any, message: str) -> SchemaError:
    """Return the error of a reference to what is not there, which ``message`` quotes, without the sign of a pointer."""
    for path, keyword, uri in references(schema):
        if f"'{uri.removeprefix('#')}'" in message:
            return SchemaError(_why(keyword, uri), pointer(path), keyword)
    return SchemaError(f"not a valid JSON Schema: {message}")


def _why(keyword: str, uri: str) -> str:
    if keyword == "$schema":
        return f"{uri!r} is none of the dialects draft 4, 6, 7, 2019-09 and 2020-12; without it, it is the last"
    return f"{uri!r} leads nowhere" if uri.startswith("#") else f"{uri!r} is no part of the schema; nothing is fetched"


def _message(error: jsonschema_rs.ValidationError) -> str:
    """Return the error of a schema; for a wrong type, metaschemas only say that no alternative of theirs fits."""
    if error.instance_path[-1:] != ["type"] or error.schema_path[-1:] != ["anyOf"]:
        return error.message
    return f"{error.instance!r} is none of the types {', '.join(_TYPES)}, nor a list of them"


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise LookupError(f"{uri} is not part of the schema, and nothing is fetched")
