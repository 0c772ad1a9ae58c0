"""Later words that change a document: a value is corrected, an entry of a list is struck out, changed or added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from constrain.demo.synth import moments, quantities, spoken
from constrain.demo.synth.kinds import Person, Text, Value
from constrain.demo.synth.order import Sampling
from constrain.demo.synth.records import Records, Row
from constrain.demo.synth.slots import Slot

_CHANGED = (
    Text, Person, moments.Date, moments.Time, quantities.Money, quantities.Integer, quantities.Decimal, spoken.Duration,
)  # fmt: skip
"""Kinds of which another value is plainly another."""


def amended(text: str, slots: Sequence[Slot], facts: dict[str, Value], rng: Random) -> str:
    """Say below a text that one to three of its facts have changed, and change ``facts``; rumours change nothing."""
    labels = [label for slot in slots for label in slot.labels]
    said: list[str] = []
    count = rng.choice([1, 1, 2, 3])
    for slot in rng.sample(list(slots), len(slots)):
        if slot.key in facts and labels.count(slot.labels[0]) == 1 and len(said) < count:
            said += filter(None, [_amendment(slot, slots, facts, rng)])
    return f"{text}{rng.choice(_LEADS)}{rng.choice(_GAPS).join(said)}" if said else text


_LEADS = (
    "\n\nPS: ", "\n\nCorrection: ", "\n\nCorrections:\n", "\n\nEdit: ", "\n\nUpdate, later the same day: ", "\n\n",
    "\n\n---\nOne more thing. ", "\n\n-----\nSecond message:\n", "\n\nAdded by hand: ", "\n\nErrata\n", "\n\nOops. ",
)  # fmt: skip
_GAPS = (" ", " ", "\n", "\n\n")


def _amendment(slot: Slot, slots: Sequence[Slot], facts: dict[str, Value], rng: Random) -> str:
    """Return a sentence that changes a fact, or that denies a rumour; ``""`` if the value is of no such kind."""
    old = facts[slot.key]
    if isinstance(slot.kind, Records):
        return _of_list(slot, slot.kind, facts, rng)
    new = _other(slot, slots, facts, rng)
    if new is None:
        return ""
    if rng.random() < _RUMOURS:
        return _said(rng.choice(_DENIED), slot.labels[0], old, new)
    facts[slot.key] = new
    return _said(rng.choice(_REPLACED), slot.labels[0], old, new)


_RUMOURS = 0.25
"""Share of the sentences that mention another value which is wrong."""


def _said(sentence: str, label: str, old: Value, new: Value) -> str:
    text = sentence.format(label=label, old=old.text, new=new.text)
    return text[:1].upper() + text[1:] if sentence[:1] == "{" and not sentence.startswith(("{new}", "{old}")) else text


_REPLACED = (
    "The {label} is {new}, not {old}.", "{label}: {new} (not {old} as written above).",
    "{label}: {new}, no more {old}.", "We wrote {old} for the {label}; it should have been {new}.",
    "Scrap the {label} of {old}, make it {new}.",
    "The {label} has changed from {old} to {new}.", "{new} instead of {old} as the {label}, please.",
    "The {label} above is wrong. Right is {new}.", "For “{old}” read “{new}” ({label}).",
    "I had the wrong {label}. It is {new}.", "Forget what stands there as the {label}: {new}.",
)  # fmt: skip
_DENIED = (
    "An earlier draft had {new} as the {label}, which is void.", "The {label} is not {new}, whatever you have heard.",
    "Somebody asked whether the {label} is now {new}. No, it remains as above.",
    "{label}: still {old}, and not {new}.", "Until last year the {label} was {new}; that is over.",
    "We thought about {new} for the {label}, and then left it as it was.",
)  # fmt: skip


def _other(slot: Slot, slots: Sequence[Slot], values: dict[str, Value], rng: Random) -> Value | None:
    """Sample another value of a slot, which fits the others of a record; nothing if it cannot be changed."""
    old = values[slot.key]
    if not isinstance(slot.kind, _CHANGED) or "\n" in old.text:
        return None
    new = Sampling(slots, rng, {key: value for key, value in values.items() if key != slot.key}).sample(slot.key)
    same = new.text.lower() in old.text.lower() or old.text.lower() in new.text.lower()
    return None if same or (new.data is not None and new.data == old.data) else new


def _of_list(slot: Slot, kind: Records, facts: dict[str, Value], rng: Random) -> str:
    """Strike out, change or add an entry of a list; ``""`` if its entries cannot be told by their first column."""
    rows: list[Row] = facts[slot.key].data
    names = [row[kind.columns[0].key].text.lower() for row in rows if kind.columns[0].key in row]
    named = isinstance(kind.columns[0].kind, (Text, Person)) and len(set(names)) == len(rows) > 1
    if not named or any("\n" in name for name in names):
        return ""
    changed, sentence = rng.choice([_struck, _changed, _changed, _added])(kind, rows, rng)
    facts[slot.key] = replace(facts[slot.key], data=changed)
    return sentence.replace("{list}", slot.labels[0])


Change = tuple[list[Row], str]


def _struck(kind: Records, rows: list[Row], rng: Random) -> Change:
    at = rng.randrange(len(rows))
    name = rows[at][kind.columns[0].key].text
    return [*rows[:at], *rows[at + 1 :]], rng.choice(_STRUCK).replace("{name}", name)


_STRUCK = (
    "Please strike {name} from the {list}.", "{name} does not belong in the {list}; take it out.",
    "Delete {name} ({list}).", "In the {list}, {name} was entered by mistake.", "{list}: without {name} after all.",
)  # fmt: skip


def _changed(kind: Records, rows: list[Row], rng: Random) -> Change:
    """Change a cell of a row; nothing if none is of a kind that can be changed."""
    at = rng.randrange(len(rows))
    row, (first, *others) = rows[at], kind.columns
    for column in rng.sample(others, len(others)):
        new = _other(column, kind.columns, row, rng) if column.key in row else None
        if new:
            said = _said(rng.choice(_CELLS), column.labels[0], row[column.key], new)
            changed = [*rows[:at], {**row, column.key: new}, *rows[at + 1 :]]
            return changed, said.replace("{name}", row[first.key].text)
    return rows, ""


_CELLS = (
    "The {label} of {{name}} is {new}, not {old}.", "{{name}}: {label} {new} instead of {old}.",
    "For {{name}} we wrote {old} as the {label}, but {new} is right.", "{{name}} has another {label} now: {new}.",
    "At {{name}}, scrap {old} and make it {new} ({label}).",
)  # fmt: skip


def _added(kind: Records, rows: list[Row], rng: Random) -> Change:
    """Add a row at the end; nothing if a row has lists, or its name stands there already."""
    first, *others = kind.columns
    row = kind.sample_row(rng)
    known = {each[first.key].text.lower() for each in rows}
    if first.key not in row or row[first.key].text.lower() in known or any("\n" in each.text for each in row.values()):
        return rows, ""
    facts = rng.choice([", ", "; "]).join(f"{c.labels[0]}: {row[c.key].text}" for c in others if c.key in row)
    sentence = rng.choice(_ADDED).replace("{name}", row[first.key].text)
    return [*rows, row], f"{sentence} ({facts})." if facts else f"{sentence}."


_ADDED = (
    "Add to the {list}: {name}", "Missing in the {list} above: {name}", "Also to be entered under {list}: {name}",
    "We forgot one of the {list}, {name}", "One more for the {list}: {name}",
)  # fmt: skip
