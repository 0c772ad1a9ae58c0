"""Records as their types dump them, and pointers that follow the values."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    Secret,
    SecretStr,
    computed_field,
    field_serializer,
    model_serializer,
)

from constrain.extract import Extraction, Span
from constrain.extract.restated import restated
from constrain.extract.target import Target


def extraction(target: Target[Any], text: str, *where: str) -> Extraction[Any]:
    """Return an extraction with a span of its own number for each pointer."""
    read = target.read(text)
    spans = {each: Span(number, number) for number, each in enumerate(where)}
    return Extraction(read.value, read.json, text, [], "stop", spans=spans)


def dumped(what: Any, text: str, *where: str) -> tuple[Any, dict[str, int]]:
    target = Target.of(what)
    found = restated(extraction(target, text, *where), target)
    return found.json, {pointer: span.start for pointer, span in found.spans.items()}


class Letter(BaseModel):
    city: str = Field(validation_alias="town", serialization_alias="stadt")
    count: int = Field(0, validation_alias=AliasChoices("n", "number"))
    hidden: str = Field("", exclude=True)


class Shaped(BaseModel):
    letters: list[Letter]

    @model_serializer
    def shape(self) -> dict[str, int]:
        return {"number": len(self.letters)}


class Vault(BaseModel):
    password: SecretStr
    pin: Secret[int] | None


@dataclass
class Renamed:
    name: Annotated[str, Field(alias="Name")]


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
    name: str = Field(alias="Name")


class Computed(BaseModel):
    day: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def next(self) -> int:
        return self.day + 1

    @field_serializer("day")
    def written(self, day: int) -> str:
        return f"day {day}"


class Account(BaseModel):
    paid: list[Decimal]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sum(self) -> Decimal:
        return sum(self.paid, Decimal(0))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kinds(self) -> set[str]:
        return {"b", "a", "c"}


@pytest.mark.parametrize(
    ("what", "text", "record"),
    [
        (Letter, '{"town": "Rome", "n": 2, "hidden": "x"}', {"town": "Rome", "n": 2, "hidden": "x"}),
        (Letter, '{"town": "Rome"}', {"town": "Rome", "n": 0, "hidden": ""}),
        (Shaped, '{"letters": [{"town": "a"}]}', {"letters": [{"town": "a", "n": 0, "hidden": ""}]}),
        (Vault, '{"password": "pear", "pin": 7}', {"password": "pear", "pin": 7}),
        (Vault, '{"password": "", "pin": null}', {"password": "", "pin": None}),
        (list[Renamed], '[{"Name": "Ada"}]', [{"Name": "Ada"}]),
        (ByName, '{"name": "Ada"}', {"name": "Ada"}),
        (Computed, '{"day": 3}', {"day": "day 3", "next": 4}),
        (list[Decimal], "[12.50, 3, 1e2, 0.1]", [12.5, 3, 100, 0.1]),
        (list[Decimal | str | Letter], '[1.5, "b", {"town": "c"}]', [1.5, "b", {"town": "c", "n": 0, "hidden": ""}]),
        (dict[Decimal, Decimal], '{"1.50": 1.50}', {"1.50": 1.5}),
        (list[timedelta], '["P1Y7M3DT5H", "P2Y", "P3D"]', ["P578DT5H", "P730D", "P3D"]),
        (dict[timedelta, int], '{"P2Y": 1}', {"P2Y": 1}),
        (Annotated[Decimal, PlainSerializer(str)], "1.5", "1.5"),
        (Annotated[Decimal, AfterValidator(lambda value: value / 3)], "1", f"0.{28 * '3'}"),
        (Annotated[Decimal, AfterValidator(float)], "1.5", 1.5),
        (Account, '{"paid": [1.5, 2]}', {"paid": [1.5, 2], "sum": 3.5, "kinds": ["a", "b", "c"]}),
        (dict[str, set[int]], '{"a": [3, 1, 2]}', {"a": [3, 1, 2]}),
        ({"type": "array"}, "[3, 1, 2]", [3, 1, 2]),
    ],
)
def test_a_record_has_the_form_of_its_schema(what: Any, text: str, record: Any) -> None:
    assert dumped(what, text)[0] == record


def test_values_that_stay_in_their_place_keep_their_pointers() -> None:
    where = ("/letters/0/town", "/letters/1/n")
    text = '{"letters": [{"town": "Rome"}, {"town": "Oslo", "n": 3}]}'
    assert dumped(Shaped, text, *where)[1] == {"/letters/0/town": 0, "/letters/1/n": 1}


def without_b(items: Any) -> Any:
    return [item for item in items if item != "b"]


def in_capitals(item: str) -> str:
    return item.upper()


Names = list[Annotated[str, AfterValidator(in_capitals)]]
ITEMS = ("/0", "/1", "/2")


@pytest.mark.parametrize(
    ("what", "text", "record", "places"),
    [
        (set[str], '["zoe", "ada", "bob"]', ["zoe", "ada", "bob"], {"/0": 0, "/1": 1, "/2": 2}),
        (frozenset[Decimal], "[3.5, 1, 20.0]", [3.5, 1, 20], {"/0": 0, "/1": 1, "/2": 2}),
        (set[frozenset[int]], "[[9, 8], [1], []]", [[9, 8], [1], []], {"/0": 0, "/1": 1, "/2": 2}),
        (Annotated[list[str], AfterValidator(sorted)], '["b", "c", "a"]', ["a", "b", "c"], {"/1": 0, "/2": 1, "/0": 2}),
        (Annotated[list[str], AfterValidator(without_b)], '["a", "b", "c"]', ["a", "c"], {"/0": 0, "/1": 2}),
        (Names, '["a", "b", "c"]', ["A", "B", "C"], {"/0": 0, "/1": 1, "/2": 2}),
        (set[Annotated[str, AfterValidator(in_capitals)]], '["b", "A", "c"]', ["A", "B", "C"], {"/0": 1}),
        (list[int], "[1, 1, 1]", [1, 1, 1], {"/0": 0, "/1": 1, "/2": 2}),
    ],
)
def test_pointers_follow_the_items_of_lists(what: Any, text: str, record: Any, places: dict[str, int]) -> None:
    assert dumped(what, text, *ITEMS) == (record, places)


def test_pointers_below_a_changed_item_follow_it() -> None:
    text = '[{"town": "b", "n": 1}, {"town": "a"}]'
    what = Annotated[list[Letter], AfterValidator(lambda letters: sorted(letters, key=lambda each: each.city))]
    assert dumped(what, text, "/0/n", "/1/town")[1] == {"/1/n": 0, "/0/town": 1}


def test_sets_do_not_depend_on_hashes() -> None:
    program = (
        "from constrain.extract.target import Target\n"
        "target = Target.of(dict[str, set[str]])\n"
        "names = {'a': {'zoe', 'ada', 'bob', 'eve', 'tom'}}\n"
        "print(target.dump(names), target.write(names))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        for seed in "12"
    ]
    assert runs[0].stdout == runs[1].stdout != ""


def test_a_value_is_written_as_the_model_would() -> None:
    target = Target.of(list[Letter | Vault])
    value = [Letter(town="Rome", n=2), Vault(password=SecretStr("pear"), pin=None)]  # type: ignore[call-arg]
    assert target.read(target.write(value)).value == value
