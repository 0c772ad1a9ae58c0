"""Partial records: complete values only, typed, with the spans so far."""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator, model_validator
from typing_extensions import TypedDict

import constrain
from constrain import LLM, Evidence, Quote
from constrain.documents import Document
from constrain.engine import compile_json_schema
from constrain.errors import BudgetError, SchemaError
from constrain.extract import Partial, Target
from constrain.extract.partial import PartialReader
from constrain.testing import small_vocabulary

TEXT = "Invoice 7, due May 3rd, 2026: pears 12 €, figs 7 €, pears 3 €. Größe “L”\nEnd 👩🏽\u200d🚀."


def pair(quote: str, value: Any) -> dict[str, Any]:
    return {"quote": quote, "value": value}


def partials(what: Any, written: Any, text: str = TEXT) -> Iterator[Partial[Any]]:
    """The partial records while a record is written character by character."""
    target = Target.of(what)
    grammar = compile_json_schema(target.output_schema, small_vocabulary(), sources={"text": text})
    document = json.dumps(written, ensure_ascii=False)
    assert grammar.accepts(document)
    reader = PartialReader(target, Document(text), grammar)
    for end in range(len(document) + 1):
        if partial := reader.read(document[:end]):
            yield partial


def records(what: Any, written: Any) -> list[Any]:
    return [partial.json for partial in partials(what, written)]


# ---- JSON.


def test_values_are_complete() -> None:
    written = {"a": 'x "y"\\', "b": [12, -3.5e2, None], "c": {"d": True, "e": []}, "f": "", "g": 7}
    assert records({}, written) == [
        {"a": 'x "y"\\'},
        {"a": 'x "y"\\', "b": [12]},
        {"a": 'x "y"\\', "b": [12, -350]},
        {"a": 'x "y"\\', "b": [12, -350, None]},
        {"a": 'x "y"\\', "b": [12, -350, None], "c": {"d": True}},
        {"a": 'x "y"\\', "b": [12, -350, None], "c": {"d": True, "e": []}, "f": ""},
        {"a": 'x "y"\\', "b": [12, -350, None], "c": {"d": True, "e": []}, "f": "", "g": 7},
    ]


def test_a_character_that_is_not_complete_waits() -> None:
    target = Target.of({"type": "array", "items": {"type": "string", "x-verbatim": {"source": "text"}}})
    grammar = compile_json_schema(target.output_schema, small_vocabulary(), sources={"text": TEXT})
    reader = PartialReader(target, Document(TEXT), grammar)
    found = [reader.read(text) for text in ('["Gr\ufffd', '["Gr', '["Größe", "\ufffd', '["Größe", "👩🏽"')]
    assert [partial and partial.json for partial in found] == [None, None, ["Größe"], ["Größe", "👩🏽"]]


def test_evidence_without_its_value_is_left_out() -> None:
    schema = {
        "type": "object",
        "properties": {
            "due": {"type": "string", "format": "date", "x-evidence": True},
            "prices": {"type": "array", "items": {"type": "integer", "x-evidence": True}},
        },
        "additionalProperties": False,
    }
    written = {"due": pair("May 3rd", "2026-05-03"), "prices": [pair("12 €", 12), pair("7 €", 7)]}
    assert records(schema, written) == [
        {"due": "2026-05-03"},
        {"due": "2026-05-03", "prices": [12]},
        {"due": "2026-05-03", "prices": [12, 7]},
    ]
    assert records({"type": "integer", "x-evidence": True}, pair("7", 7)) == [7]


# ---- Types.


class Kind(enum.Enum):
    BILL = "bill"
    ORDER = "order"


class Item(BaseModel):
    name: Quote
    price: Evidence[int]

    @model_validator(mode="after")
    def _is_whole(self) -> Item:
        assert self.price is not None
        return self


class Bill(BaseModel):
    number: int
    kind: Kind = Kind.ORDER
    due: Evidence[date] | None = None
    items: Annotated[list[Item], Field(min_length=2)]
    label: str = Field(alias="the label", min_length=1)

    @field_validator("number")
    @classmethod
    def _doubled(cls, number: int) -> int:
        return 2 * number

    @field_validator("items")
    @classmethod
    def _are_two(cls, items: list[Item]) -> list[Item]:
        assert len(items) == 2
        return items


BILL = {
    "number": 7,
    "kind": "bill",
    "due": pair("May 3rd, 2026", "2026-05-03"),
    "items": [{"name": "pears", "price": pair("3 €", 3)}, {"name": "figs", "price": pair("7 €", 7)}],
    "the label": "x",
}


def test_models_have_none_for_what_is_not_known() -> None:
    found = [partial.value for partial in partials(Bill, BILL)]
    assert all(type(each) is Bill for each in found)
    first = found[0]
    assert (first.number, first.kind, first.due, first.items, first.label) == (14, None, None, None, None)
    assert first.model_fields_set == {"number"}
    assert [each.due for each in found[:3]] == [None, None, date(2026, 5, 3)]
    assert [each.items and [(item.name, item.price) for item in each.items] for each in found[3:]] == [
        [("pears", None)],
        [("pears", 3)],
        [("pears", 3), ("figs", None)],
        [("pears", 3), ("figs", 7)],
        [("pears", 3), ("figs", 7)],
    ]
    assert all(type(item) is Item for item in found[-1].items)
    assert found[-1] == Target.of(Bill).read(json.dumps(BILL)).value


def test_spans_are_those_so_far() -> None:
    *_, one, last, _ = partials(Bill, BILL)
    places = {where: TEXT[slice(*span)] for where, span in last.spans.items()}
    assert places == {
        "/due": "May 3rd, 2026",
        "/items/0/name": "pears",
        "/items/0/price": "3 €",
        "/items/1/name": "figs",
        "/items/1/price": "7 €",
    }
    assert set(places) - set(one.spans) == {"/items/1/price"}


@dataclass
class Point:
    x: int
    y: list[int]

    def __post_init__(self) -> None:
        assert self.y


class Options(TypedDict):
    a: int
    b: str


class Pair(NamedTuple):
    first: int
    second: Quote


class Cash(BaseModel):
    kind: Literal["cash"]
    paid: int


class Card(BaseModel):
    number: int
    kind: Literal["card"]


class Short(BaseModel):
    text: str


class Long(BaseModel):
    text: str
    width: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow", str_strip_whitespace=True)
    text: str


class Root(RootModel[list[Short]]):
    pass


class Tree(BaseModel):
    name: str
    children: list[Tree] = []

    def model_post_init(self, context: Any) -> None:
        assert self.name


PAID = Annotated[Cash | Card, Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("what", "written", "shown"),
    [
        (Options, {"a": 1, "b": "x"}, ["{'a': 1}", "{'a': 1, 'b': 'x'}"]),
        (list[Quote], ["figs", "7"], ["['figs']", "['figs', '7']"]),
        (dict[str, date], {"x": "2026-05-03"}, ["{'x': datetime.date(2026, 5, 3)}"]),
        (tuple[bool, Evidence[int]], [True, pair("7", 7)], ["(True, 7)"]),
        (Pair, [1, "figs"], ["Pair(first=1, second='figs')"]),
        (
            list[PAID],
            [{"kind": "cash", "paid": 1}],
            ["[Cash(kind='cash', paid=None)]", "[Cash(kind='cash', paid=1)]"],
        ),
        # The number alone does not tell which alternative it is.
        (list[PAID], [{"number": 1, "kind": "card"}], ["[Card(number=1, kind='card')]"]),
        (list[Cash | Point], [{"x": 1, "y": [2]}], ["[Point(x=1, y=None)]", "[Point(x=1, y=[2])]"]),
        (Short | Long, {"text": "a", "width": 2}, ["Short(text='a')", "Long(text='a', width=2)"]),
        (Open, {"text": " a ", "more": 1}, ["Open(text='a')", "Open(text='a', more=1)"]),
        (Root, [{"text": "a"}], ["Root(root=[Short(text='a')])"]),
    ],
)
def test_other_types(what: Any, written: Any, shown: list[str]) -> None:
    assert [repr(partial.value) for partial in partials(what, written)] == shown


def test_dataclasses_have_none_for_what_is_not_known() -> None:
    found = [partial.value for partial in partials(Point, {"x": 1, "y": [2, 3]})]
    assert [(each.x, each.y) for each in found] == [(1, None), (1, [2]), (1, [2, 3])]


def test_recursive_types() -> None:
    written = {"name": "a", "children": [{"name": "b", "children": []}, {"name": "c", "children": []}]}
    found = [partial.value for partial in partials(Tree, written)]
    assert [[child.name for child in each.children or []] for each in found] == [[], ["b"], ["b", "c"]]


# ---- The model.


@dataclass
class Person:
    name: Annotated[str, Field(max_length=8)]
    kind: Evidence[Literal["a", "b"]]
    town: Quote | None = None


def short_prompt(schema: object, text: str) -> str:
    return text + "\n"


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir, prompt=short_prompt)


def test_a_stream_ends_with_the_whole_record(llm: LLM) -> None:
    stream = llm.extract_stream(Person, "hello there, help the hero", seed=1, temperature=1.0)
    assert stream.extraction is None
    found = list(stream)
    whole = llm.extract(Person, "hello there, help the hero", seed=1, temperature=1.0)
    assert [list(each.json) for each in found] == [["name"], ["name", "kind"], ["name", "kind", "town"]]
    assert found[-1].value == whole.value and found[-1].spans == whole.spans
    assert stream.extraction == whole


def test_an_asynchronous_stream_is_the_same(llm: LLM) -> None:
    async def collect() -> list[Any]:
        return [each.json async for each in llm.extract_stream(Person, "hello there", seed=2)]

    assert asyncio.run(collect()) == [each.json for each in llm.extract_stream(Person, "hello there", seed=2)]


@pytest.mark.parametrize(("schema", "record"), [({"const": 12}, 12), ({"const": {}}, {}), ({"const": None}, None)])
def test_records_of_a_single_value(llm: LLM, schema: Any, record: Any) -> None:
    assert [each.value for each in llm.extract_stream(schema, "hello")] == [record]


def test_a_stream_that_is_left_is_cancelled(llm: LLM) -> None:
    for _ in llm.extract_stream(Person, "hello there"):
        break

    async def leave() -> None:
        stream = aiter(llm.extract_stream(Person, "hello there"))
        await anext(stream)
        await stream.aclose()

    asyncio.run(leave())
    llm.runtime.run_until(lambda: not llm.runtime.scheduler.running, 10)
    assert llm.extract({"const": 1}, "hello").value == 1


def test_errors_are_raised_by_the_loop(llm: LLM) -> None:
    stream = llm.extract_stream(Person, "hello", max_new_tokens=2)
    with pytest.raises(BudgetError):
        list(stream)
    with pytest.raises(SchemaError):
        llm.extract_stream({"type": "objekt"}, "hello")
