"""Documents that are corrected at their end, and fields that ask for one entry of a list."""

from __future__ import annotations

from random import Random

import pytest

from constrain.demo.synth import records
from constrain.demo.synth.amendments import amended
from constrain.demo.synth.family import parse_family
from constrain.demo.synth.kinds import Value
from constrain.demo.synth.lookups import looked_up
from constrain.demo.synth.nested import in_groups
from constrain.demo.synth.records import Records
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import parse_kind

COUNT = Slot("count", parse_kind("int 10 99"), ("guests",))
DISH = Slot("dish", parse_kind("pick soup/roast/tart/cheese/salad/bread"), ("dish",))
PRICE = Slot("price", parse_kind("int 100 999"), ("price",))
MENU = Slot("menu", Records((DISH, PRICE), 2, 4), ("courses",))
ROWS = [{"dish": Value("soup"), "price": Value("104", 104)}, {"dish": Value("tart"), "price": Value("207", 207)}]
TEXT = "For 14 guests: soup 104, tart 207."


def facts() -> dict[str, Value]:
    return {"count": Value("14", 14), "menu": Value("soup 104, tart 207", list(ROWS))}


def test_a_corrected_value_is_the_one_told_last() -> None:
    changed = 0
    for seed in range(200):
        told = facts()
        text = amended(TEXT, [COUNT], told, Random(seed))
        assert text.startswith(TEXT)
        assert told["count"].text in text
        changed += told["count"].data != 14
    assert 100 < changed < 190


def test_entries_are_struck_out_changed_and_added() -> None:
    lengths = set()
    for seed in range(200):
        told = facts()
        text = amended(TEXT, [MENU], told, Random(seed))
        rows = told["menu"].data
        lengths.add(len(rows))
        assert all(value.text in text for row in rows for value in row.values())
        assert "{" not in text
    assert lengths == {1, 2, 3}


def test_single_entries_are_asked_for_by_name_or_place() -> None:
    found: dict[str, str | None] = {}
    for seed in range(200):
        told = facts()
        for slot in looked_up(TEXT, [COUNT, MENU], told, Random(seed)):
            found[slot.labels[0]] = told[slot.key].text if slot.key in told else None
    assert {"price of soup": "104", "price of tart": "207", "first dish": "soup", "last dish": "tart"}.items() <= (
        found.items()
    )
    assert {found.get(f"price of {name}") for name in ("roast", "cheese", "salad")} == {None}
    assert looked_up(TEXT, [COUNT], facts(), Random(1)) == []


def test_entries_of_lists_may_have_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_LONGER", 0.0)
    family = parse_family(
        "trip\ndays | records 2-2 | days\n  day | noun | day\n  stops | records 1-2 | stops\n"
        "    place | city | place\n    > - {place}\n  > {day} ¶ {stops} ¶\n---\n{days}\n"
    )
    kind = family.slots[0].kind
    for seed in range(50):
        value = kind.sample(Random(seed))
        assert len(value.data) >= 2
        assert all(stop["place"].text in value.text for row in value.data for stop in row["stops"].data)


def test_entries_stand_in_groups_below_headings() -> None:
    made = 0
    for seed in range(60):
        groups = in_groups(MENU, Random(seed))
        assert groups is not None
        value = groups.kind.sample(Random(seed))
        for row in value.data:
            assert row["head"].text in value.text
            assert all(cell.text in value.text for entry in row["entries"].data for cell in entry.values())
            made += 1
        assert not any(mark in value.text for mark in ("{head}", "{fact}", "{entries}", "%"))
        assert in_groups(groups, Random(seed)) is None
    assert made > 120
