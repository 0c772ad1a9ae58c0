"""Values of one kind in several roles, and parties with the same facts."""

from __future__ import annotations

from itertools import combinations
from random import Random

from constrain.demo.synth import Split, example
from constrain.demo.synth.habits import Author
from constrain.demo.synth.kinds import Text, Value
from constrain.demo.synth.roles import groups, sample_parties, sample_roles


def test_groups_have_several_roles_with_labels_and_sentences_of_their_own() -> None:
    assert len(groups()) >= 60
    assert len({group.name for group in groups()}) == len(groups())
    for group in groups():
        assert len(group.slots) >= 4, group.name
        assert len({slot.key for slot in group.slots}) == len(group.slots)
        for slot, other in combinations(group.slots, 2):
            assert set(slot.labels).isdisjoint(other.labels), group.name
        for slot in group.slots:
            assert slot.says or not isinstance(slot.kind, Text), (group.name, slot.key)
            assert all(sentence.count("{}") == 1 for sentence in slot.says), (group.name, slot.key)


def test_some_roles_are_stated_and_others_are_not() -> None:
    silent_ones = 0
    for seed in range(200):
        stated, silent = sample_roles(Random(seed))
        assert 1 <= len(stated) <= 10
        slots = [*stated, *silent]
        assert len({slot.key for slot in slots}) == len(slots)
        labels = [label for slot in slots for label in set(slot.labels)]
        assert len(set(labels)) == len(labels)
        silent_ones += bool(silent)
    assert silent_ones > 180


def test_parties_are_told_apart_by_the_labels_of_their_facts() -> None:
    for seed in range(200):
        text, slots, facts = sample_parties(Author(str(seed)))
        labels = [label for slot in slots for label in slot.labels]
        assert len(set(labels)) == len(labels)
        assert set(facts) < {slot.key for slot in slots} or len(facts) == len(slots)
        lines = " ".join(text.split())
        assert all(" ".join(value.text.split()) in lines for value in facts.values())


def test_streets_and_towns_are_printed_with_more_than_themselves() -> None:
    longer = {"street": 0, "city": 0}
    for seed in range(600):
        text, slots, facts = sample_parties(Author(str(seed)))
        kinds = {slot.key: getattr(slot.kind, "name", "") for slot in slots}
        asked = set(kinds.values())
        for key, value in facts.items():
            if kinds[key] == "street" and "city" not in asked:
                longer["street"] += f"{value.text}, " in text
            if kinds[key] == "city" and "code" not in asked:
                longer["city"] += not _stands_alone(value, text)
    assert min(longer.values()) > 10


def _stands_alone(value: Value, text: str) -> bool:
    before = text[: text.index(value.text)].rstrip(" ")
    return not before[-1:].isdigit()


def test_examples_ask_for_roles_that_the_text_states_and_for_others() -> None:
    samples = [each for each in (example(0, Split.TRAIN, index) for index in range(600)) if each.family == "roles"]
    assert len(samples) > 20
    records = [sample.record for sample in samples if isinstance(sample.record, dict)]
    assert sum(None in record.values() for record in records) > len(records) / 3
    assert all(any(value is not None for value in record.values()) for record in records if len(record) > 4)
