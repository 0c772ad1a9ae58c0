"""Examples are checked when they are given, and errors name the example and the place."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator, PlainSerializer, field_serializer, field_validator

import constrain
from constrain import LLM, Evidence, Quote
from constrain.documents import Document
from constrain.errors import ArgumentError, ExtractionError
from constrain.extract import Target
from constrain.extract.examples import checked_examples, read_examples


class Payment(BaseModel):
    name: str
    due: date | None
    parts: list[float] = []

    @field_validator("name")
    @classmethod
    def _is_short(cls, name: str) -> str:
        assert len(name) < 9, "too long"
        return name


TARGET = Target.of(Payment)
RECORD = {"name": "Zoë", "due": "2026-03-01", "parts": [1.5]}


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir)


def test_decimals_of_examples_are_numbers() -> None:
    target = Target.of(dict[str, Decimal])
    examples = checked_examples(target, [("a", {"a": Decimal("12.50")}), ("b", {"b": 3}), ("c", {"c": 0.1})])
    assert [each.record for each in examples] == ['{"a": 12.5}', '{"b": 3}', '{"c": 0.1}']


Cents = Annotated[float, BeforeValidator(lambda cents: cents / 100), PlainSerializer(lambda value: 100 * value)]


class Stay(BaseModel):
    """Its serializers write for people, and lose what a record has."""

    day: date
    price: float
    tax: Annotated[float, PlainSerializer(round)] = 0
    nights: Annotated[list[int], PlainSerializer(len)] = []

    @field_serializer("day")
    def _for_people(self, day: date) -> str:
        return f"{day:%d.%m.}"

    @field_serializer("price", mode="wrap")
    def _rounded(self, price: float, write: Any) -> Any:
        return write(round(price))


class Unequal(BaseModel):
    price: Annotated[float, PlainSerializer(round)]

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth of prices is ambiguous")


def test_serializers_of_fields_take_nothing_from_records() -> None:
    target = Target.of(list[Stay])
    (example,) = checked_examples(target, [("a", [Stay(day=date(2026, 3, 1), price=2.5, tax=0.25, nights=[3, 4])])])
    record = {"day": "2026-03-01", "price": 2.5, "tax": 0.25, "nights": [3, 4]}
    assert json.loads(example.record) == [record]


def test_serializers_of_fields_that_lose_nothing_write_records() -> None:
    (example,) = checked_examples(Target.of(Cents), [("a", 2.5)])
    assert example.record == "250.0"


def test_records_that_cannot_be_compared_are_written() -> None:
    (example,) = checked_examples(Target.of(Unequal), [("a", Unequal(price=2.0))])
    assert json.loads(example.record) == {"price": 2}


def test_records_are_values_or_json() -> None:
    value = Payment(name="Zoë", due=date(2026, 3, 1), parts=[1.5])
    given = [("Zoë pays.", value), (Document("Zoë pays."), RECORD), ["Zoë pays.", RECORD]]
    assert (
        checked_examples(TARGET, given) == (("Zoë pays.", '{"name": "Zoë", "due": "2026-03-01", "parts": [1.5]}'),) * 3
    )
    assert checked_examples(Target.of(TARGET.schema), [("Zoë pays.", RECORD)])[0].record.startswith('{"name": "Zoë"')


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ("ab", "examples must be a list of pairs"),
        ({"a": RECORD}, "examples must be a list of pairs"),
        (["ab"], r"examples\[0\] must be a pair of a document and its record"),
        ([("a",)], r"examples\[0\] must be a pair"),
        ([(5, RECORD)], r"examples\[0\]: the text of a document must be a str"),
        ([("a", object())], r"examples\[0\]: the record cannot be written as JSON"),
        ([("a", {**RECORD, "parts": [math.nan]})], r"examples\[0\]: .* at #/parts/0: "),
        ([("a", RECORD), ("b", {**RECORD, "due": "soon"})], r"examples\[1\]: .* does not match the schema at #/due: "),
        ([("a", {**RECORD, "parts": [1, "x"]})], r"examples\[0\]: .* at #/parts/1: "),
        (
            [("a", {**RECORD, "name": "Bartholomew"})],
            r"examples\[0\]: the record is refused by its type at #/name: .*too long",
        ),
    ],
)
def test_wrong_examples(examples: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        checked_examples(TARGET, examples)


def test_records_have_their_quotes() -> None:
    record = {"quote": "three euros", "value": 3}
    (example,) = checked_examples(Target.of(Evidence[int]), [("He paid three euros.", record)])
    assert example.record == '{"quote": "three euros", "value": 3}'


@pytest.mark.parametrize(
    ("what", "record", "where"),
    [
        (dict[str, Quote], {"a/b": "tree"}, "#/a~1b, 'tree'"),
        (list[Evidence[int]], [{"quote": "hree euros", "value": 3}], "#/0, 'hree euros'"),
    ],
)
def test_quotes_that_do_not_stand_in_the_document_are_refused(what: Any, record: Any, where: str) -> None:
    with pytest.raises(ArgumentError, match=f"examples.0.: the quote at {where}, does not stand in the document"):
        checked_examples(Target.of(what), [("He paid three euros.", record)])


def test_a_value_without_its_quote_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r'at #/0: 3 is not of type "object"; a value with evidence is \{"quote"'):
        checked_examples(Target.of(list[Evidence[int]]), [("He paid three euros.", [3])])


def test_every_door_checks_examples_at_once(llm: LLM) -> None:
    wrong: Any = [("a", {"name": 5})]
    for call in (llm.extract, llm.extract_many, llm.aextract_many):
        with pytest.raises(ArgumentError, match=r"examples\[0\]"):
            call(Payment, "hello" if call == llm.extract else ["hello"], examples=wrong)  # type: ignore[operator]
    with pytest.raises(ArgumentError, match="instructions must be a str"):
        llm.extract(Payment, "hello", instructions=["be brief"])  # type: ignore[arg-type]


def test_a_prompt_of_ones_own_takes_none(llm: LLM) -> None:
    own = LLM(llm.runtime, prompt=lambda schema, text: text)
    with pytest.raises(ArgumentError, match="takes no instructions and examples"):
        own.extract_many(bool, ["hello"], examples=[("hello", True)])
    with pytest.raises(ArgumentError, match="takes no instructions and examples"):
        own.extract(bool, "hello", instructions="Be brief.")


def test_examples_that_do_not_fit(llm: LLM) -> None:
    with pytest.raises(ExtractionError, match=r"leaves no room for the document.*, or give fewer examples"):
        llm.extract(bool, "hello", examples=[("hello " * 300, True)])


def test_examples_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text('{"document": "Zoë", "record": {"a": [1]}}\n\n{"record": true, "document": ""}\n', encoding="utf-8")
    assert read_examples(path) == [("Zoë", {"a": [1]}), ("", True)]
    path.write_text('{"document": "a\u2028b\x85", "record": 1}\r\n{"document": "c", "record": 2}', encoding="utf-8-sig")
    assert read_examples(path) == [("a\u2028b\x85", 1), ("c", 2)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "examples.jsonl, line 2: not JSON"),
        ("[" * 100_000, "examples.jsonl, line 2: not JSON: maximum recursion"),
        ("[1]", "examples.jsonl, line 2: must be"),
        ('{"text": "a", "record": 1}', "line 2: must be .*document"),
        (b"\xff", "examples.jsonl: .*utf-8"),
        (None, "examples.jsonl: .*No such file"),
    ],
)
def test_wrong_files(line: str | bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    if line is not None:
        path.write_bytes(b'{"document": "a", "record": 1}\n' + (line if isinstance(line, bytes) else line.encode()))
    with pytest.raises(ArgumentError, match=message):
        read_examples(path)
