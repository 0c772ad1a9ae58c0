"""Fields that ask for one entry of a list: the price of a certain product, the first of the guests."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from constrain.demo.synth.kinds import Person, Text, Value
from constrain.demo.synth.records import Records, Row
from constrain.demo.synth.slots import Slot


def looked_up(text: str, slots: Sequence[Slot], facts: dict[str, Value], rng: Random) -> list[Slot]:
    """Make one or two slots for single entries of a list, and add their values to ``facts`` where the list has them."""
    lists = [slot for slot in slots if slot.key in facts and isinstance(slot.kind, Records) and facts[slot.key].data]
    if not lists:
        return []
    slot = rng.choice(lists)
    kind, rows = slot.kind, facts[slot.key].data
    assert isinstance(kind, Records)
    made = [_end_of(kind, rows, rng) if rng.random() < 0.3 else _of_entry(text, kind, rows, rng) for _ in range(2)]
    found = {each.labels[0]: (each, value) for each, value in filter(None, made[: rng.randint(1, 2)])}
    facts.update((each.key, value) for each, value in found.values() if value)
    return [each for each, _ in found.values()]


Found = tuple[Slot, Value | None]


def _end_of(kind: Records, rows: list[Row], rng: Random) -> Found | None:
    """Ask for the first or last entry, by its first column."""
    first, (word, row) = kind.columns[0], rng.choice([("first", rows[0]), ("last", rows[-1])])
    label = f"{word} {first.labels[0]}"
    slot = Slot(f"lookup {label}", first.kind, (label,), f"{first.labels[0]} of the {word} entry")
    return (slot, row[first.key]) if first.key in row else None


def _of_entry(text: str, kind: Records, rows: list[Row], rng: Random) -> Found | None:
    """Ask for a value of a named entry; one in five names is not in the text, and has no value."""
    first, *others = kind.columns
    others = [column for column in others if not isinstance(column.kind, Records)]
    names = [row[first.key].text for row in rows if first.key in row]
    if not isinstance(first.kind, (Text, Person)) or not others or len({name.lower() for name in names}) < len(rows):
        return None
    column, at = rng.choice(others), rng.randrange(len(rows))
    name, value = names[at], rows[at].get(column.key)
    if rng.random() < _UNKNOWN:
        name, value = first.kind.sample(rng).text, None
        if name.lower() in text.lower():
            return None
    if len(name) > _LONGEST_NAME or "\n" in name:
        return None
    label = f"{column.labels[0]} of {name}"
    slot = Slot(f"lookup {label}", column.kind, (label,), f"{column.labels[0]} of {first.labels[0]} {name}")
    return slot, value


_UNKNOWN = 0.2
_LONGEST_NAME = 28
"""Number of characters of the longest names that fields are named after."""
