"""Nouns after numbers: singular after one."""

from __future__ import annotations

import re
from random import Random

import pytest

from constrain.demo.synth import template
from constrain.demo.synth.counting import after_one, stated, unit_of
from constrain.demo.synth.documents import _worded
from constrain.demo.synth.family import parse_family
from constrain.demo.synth.habits import Author
from constrain.demo.synth.kinds import Value
from constrain.demo.synth.quantities import without_unit
from constrain.demo.synth.specs import parse_kind
from constrain.demo.synth.wordlists import words


@pytest.mark.parametrize(
    ("text", "singular"),
    [
        (" nights, please", " night, please"),
        (" guests are coming", " guest is coming"),
        (" days’ notice", " day’s notice"),
        (" days' notice", " day's notice"),
        (" children", " child"),
        (" is enough", " is enough"),
        (". Rooms", ". Rooms"),
        (" kg", " kg"),
    ],
)
def test_nouns_are_singular_after_one(text: str, singular: str) -> None:
    assert after_one(text) == singular
    assert stated("For {}" + text, "1", 1) == f"For 1{singular}"
    assert stated("For {}" + text, "2", 2) == f"For 2{text}"


def test_plurals_that_are_counted_differ_from_their_singulars() -> None:
    pairs = [line.split(" ") for line in words("counted")]
    assert all(len(pair) == 2 and pair[0] != pair[1] for pair in pairs)
    assert len({plural for plural, _ in pairs}) == len(pairs) > 200


@pytest.mark.parametrize("spec", ["int 1 2 nights", "count 1 2 members of the public", "int 1 2 working days"])
def test_units_are_singular_where_the_number_is_one(spec: str) -> None:
    unit = spec.split(" ", 3)[3]
    kind = parse_kind(spec)
    values = [kind.sample(Random(seed)) for seed in range(120)]
    assert {value.data for value in values} == {1, 2}
    for value in values:
        assert value.text.endswith(unit) == (value.data == 2)
        if value.data == 1:
            assert re.search("(night|member of the public|working day)$", value.text)
        split = without_unit(kind, value)
        assert split is None or split == (str(value.data), unit)


def test_other_units_are_as_they_are() -> None:
    assert unit_of(1, "1", "kg") == "kg"
    assert unit_of(1, "1.0", "hours") == "hours"
    assert without_unit(parse_kind("int 1 9 kg"), Value("1 kg", 1)) == ("1", "kg")


def test_wordings_agree_with_their_numbers() -> None:
    family = parse_family("x\nn | int 1 2 | nights\n---\n{n} nights for {=int 1 1} guests")
    seen = set()
    for seed in range(60):
        author = Author(str(seed))
        author.clean = True
        text, facts = _worded(family, template.parse(family.wordings[0]), author)
        assert text.endswith(" guest")
        assert ("nights" in text) == (facts["n"].data == 2)
        seen.add(facts["n"].data)
    assert seen == {1, 2}


def test_rows_agree_with_their_numbers() -> None:
    kind = (
        parse_family("x\nrooms | records 1-1 | rooms\n  m | int 1 1 | beds\n  >> {m} beds\n---\n{rooms}").slots[0].kind
    )
    assert kind.sample(Random(1), "inline").text.endswith(" bed")
