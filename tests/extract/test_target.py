"""Types and schemas as targets: the schema that is decoded under, and what a document becomes."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from constrain.errors import ExtractionError, SchemaError
from constrain.extract.target import Target

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict):
    verbose: bool


class Item(BaseModel):
    name: str
    colour: Colour
    tags: list[Literal["a", "b"]] = Field(max_length=2)
    at: Point | None = None


class OpenItem(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


@pytest.mark.parametrize(
    ("what", "text", "value"),
    [
        (
            Item,
            '{"name": "n", "colour": "red", "tags": ["a"], "at": {"x": 1}}',
            Item(name="n", colour=Colour.RED, tags=["a"], at=Point(1)),
        ),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Options, '{"verbose": true}', {"verbose": True}),
        (Colour, '"blue"', Colour.BLUE),
        (Literal["yes", 3], "3", 3),
        (Point | Item, '{"x": 5}', Point(5)),
        (list[Point], '[{"x": 1}]', [Point(1)]),
        (int | None, "null", None),
        ({"type": "object", "required": ["a"]}, '{"a": 1, "b": 2}', {"a": 1, "b": 2}),
    ],
)
def test_a_document_becomes_a_value(what: Any, text: str, value: Any) -> None:
    assert Target.of(what).read(text).value == value


def test_objects_of_types_are_closed_unless_the_type_is_open() -> None:
    schema = Target.of(Item).schema
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Point"]["additionalProperties"] is False
    assert Target.of(Options).schema["additionalProperties"] is False
    assert Target.of(OpenItem).schema["additionalProperties"] is True


def test_properties_keep_the_order_of_the_fields() -> None:
    assert list(Target.of(Item).schema["properties"]) == ["name", "colour", "tags", "at"]


def test_a_dict_is_taken_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert Target.of(schema).schema == schema
    target = Target.of(schema)
    assert Target.of(target) is target


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"type": "objekt"}, "", "type"),
        ({"properties": {"a": {"minLength": -1}}}, "/properties/a", "minLength"),
        ({"$defs": {"x": {"enum": "abc"}}}, "/$defs/x", "enum"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "", "$schema"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/y"}]}, "/anyOf/1", "$ref"),
        ({"items": {"$ref": "https://example.com/schema"}}, "/items", "$ref"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "/properties/a", "$ref"),
        ({"properties": {"a": {"$ref": "#nowhere"}}}, "/properties/a", "$ref"),
    ],
)
def test_an_invalid_schema_is_named(schema: dict[str, Any], pointer: str, keyword: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Target.of(schema)
    assert (caught.value.pointer, caught.value.keyword) == (pointer, keyword)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {"a": {"type": int}}}, r"^#/properties/a/type: <class 'int'> is a Python type: write "),
        ({"name": list[str]}, r"^#/name: list\[str\] is a Python type: write "),
        ({"enum": ["a", {1}]}, r"^#/enum/1: \{1\} is no JSON$"),
        ({1: {}}, "^1 is no JSON$"),
        ('{"type": "object"}', "^a schema is a dict or a type, .*; json.loads parses one from a text$"),
    ],
)
def test_what_is_no_json_in_a_schema_is_named(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Target.of(schema)


def test_keys_in_a_pointer_are_escaped() -> None:
    with pytest.raises(SchemaError) as caught:
        Target.of({"properties": {"a/b~c": {"type": 1}}})
    assert caught.value.pointer == "/properties/a~1b~0c"


@pytest.mark.parametrize(
    "what", ["Item", b"{}", None, True, 5, [{}], object(), Callable[[int], int], len, lambda text: text]
)
def test_what_is_no_schema_is_refused(what: Any) -> None:
    with pytest.raises(SchemaError):
        Target.of(what)


@pytest.mark.parametrize("value", [Point(1), Item(name="n", colour=Colour.RED, tags=[])])
def test_a_value_is_not_taken_for_its_type(value: Any) -> None:
    with pytest.raises(SchemaError, match=f"give the type {type(value).__name__} itself, not a value of it"):
        Target.of(value)


@pytest.mark.parametrize(
    ("what", "text", "message"),
    [
        (Point, '{"x": 1', "not JSON"),
        (Point, '{"x": "one"}', "does not match the schema at #/x"),
        (Point, '{"x": 1, "z": 2}', "does not match the schema at #:"),
        ({"format": "date"}, '"2024-02-30"', "does not match the schema"),
    ],
)
def test_a_document_that_does_not_match_is_refused(what: Any, text: str, message: str) -> None:
    with pytest.raises(ExtractionError, match=message) as caught:
        Target.of(what).read(text)
    assert caught.value.text == text


def test_a_long_reason_is_cut_in_the_middle() -> None:
    with pytest.raises(ExtractionError, match=r"at #: .* has less than 999 items$") as caught:
        Target.of({"minItems": 999}).read(str(["x" * 500]).replace("'", '"'))
    assert len(str(caught.value)) < 500


def test_a_validator_of_the_type_has_the_last_word() -> None:
    class Even(BaseModel):
        n: int

        def model_post_init(self, context: Any) -> None:
            if self.n % 2:
                raise ValueError("odd")

    with pytest.raises(ExtractionError, match="odd"):
        Target.of(Even).read('{"n": 3}')


class Shouted(BaseModel):
    name: Annotated[str, AfterValidator(str.upper)] = Field(alias="Name")
    day: date | None = None


def test_a_value_is_dumped_with_the_changes_of_its_validators_and_its_aliases() -> None:
    target = Target.of(Shouted)
    assert target.dump(target.read('{"Name": "ada", "day": null}').value) == {"Name": "ADA", "day": None}
    assert target.dump(Shouted(Name="b", day=date(2024, 5, 6))) == {"Name": "B", "day": "2024-05-06"}
    assert Target.of({"type": "integer"}).dump(3) == 3


def test_a_value_without_a_json_form_is_an_error() -> None:
    with pytest.raises(ExtractionError, match="cannot be written as JSON"):
        Target.of(float).dump(float("nan"))


def failing(error: BaseException) -> Any:
    def fail(value: str) -> str:
        raise error

    return Annotated[str, AfterValidator(fail)]


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyError("boom"), SystemExit("boom")])
def test_whatever_a_validator_raises_is_an_extraction_error(error: BaseException) -> None:
    with pytest.raises(
        ExtractionError, match=rf"a validator .*{type(error).__name__}: .*boom.*test_target.py, line \d+"
    ):
        Target.of(failing(error)).read('"a"')


class Pathed(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    name: str = Field(validation_alias=AliasPath("person", "name"))


def test_a_field_that_is_read_from_a_path_needs_a_name() -> None:
    @dataclass
    class Nameless:
        name: Annotated[str, Field(validation_alias=AliasPath("person", 0, "name"))] = ""

    with pytest.raises(SchemaError, match=r"read from \['person', 0, 'name'\] alone: give it a name by AliasChoices"):
        Target.of(Nameless)
    assert Target.of(Pathed).read('{"name": "Ada"}').value == Pathed(name="Ada")  # type: ignore[call-arg]


def test_a_class_that_is_no_record_is_named() -> None:
    class Plain:
        name: str

    with pytest.raises(
        SchemaError, match=r"list\[.*\] has no JSON Schema: pydantic does not know <class .*Plain'>; give "
    ):
        Target.of(list[Plain])


def test_a_type_of_types_has_no_schema() -> None:
    with pytest.raises(SchemaError, match="a type, which has no form in JSON"):
        Target.of(dict[str, type[int]])


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    x: int


class Corner(enum.Enum):
    LEFT = (0, 0)


@pytest.mark.parametrize("key", [tuple[int, int], tuple[str, ...], frozenset[str], Frozen, Corner, Literal[1, 2], None])
def test_mappings_by_what_is_not_read_from_texts_have_no_schema(key: Any) -> None:
    """Pydantic has a schema for them, all of whose records but the empty one it refuses."""
    for what in (dict[key, int], list[dict[key, int]]):
        with pytest.raises(SchemaError, match=r"a mapping by .*: names in JSON are texts; give a list of models with"):
            Target.of(what)


def test_mappings_by_what_is_read_from_texts_have_a_schema() -> None:
    split = Annotated[tuple[str, ...], BeforeValidator(lambda text: text.split("-"))]
    for key, text, value in ((split, '{"a-b": 1}', ("a", "b")), (str | None, '{"a": 1}', "a")):
        assert Target.of(dict[key, int]).read(text).value == {value: 1}  # type: ignore[valid-type]


class Floor(enum.IntEnum):
    GROUND = 0
    FIRST = 1


class Size(float, enum.Enum):
    HALF = 0.5


def test_names_of_numbered_members_are_texts() -> None:
    for key, text in ((Floor, '{"1": 2}'), (Size, '{"0.5": 2}')):
        target: Target[Any] = Target.of(dict[key, int])  # type: ignore[valid-type]
        value = target.read(text).value
        assert list(map(type, value)) == [key] and target.write(value) == text
        assert target.violations({"2": 2})


def test_what_is_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(900):
        schema = {"items": schema}
    with pytest.raises(SchemaError, match="nested too deeply"):
        Target.of(schema)
    with pytest.raises(ExtractionError, match="the record is not JSON: maximum recursion"):
        Target.of({}).read("[" * 2000)
