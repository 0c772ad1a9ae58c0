"""Values of one kind in several roles: dates of issue, delivery and payment, the VAT ids of a seller and of a buyer.

``words/roles.txt`` has groups of such slots, in the syntax of families. ``words/parties.txt`` has the parties of a
document with their names, one document a line, and ``words/party_facts.txt`` what may be said about each of them: a
kind, labels that are printed, and labels that schemas ask for beside the party.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import zip_longest
from random import Random
from typing import NamedTuple

from constrain.demo.synth import pools
from constrain.demo.synth.address import labelled, titled
from constrain.demo.synth.family import Family, parse_family
from constrain.demo.synth.kinds import Kind, Value
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import parse_kind
from constrain.demo.synth.wordlists import words


@cache
def groups() -> tuple[Family, ...]:
    """Read the groups of slots that are values of one kind in different roles."""
    return tuple(parse_family(block) for block in "\n".join(("", *words("roles"))).split("\n== ")[1:])


def sample_roles(rng: Random) -> tuple[list[Slot], list[Slot]]:
    """Select slots of one to three groups; return those that a document shall state, and those that it shall not."""
    slots: list[Slot] = []
    labels: set[str] = set()
    for number, group in enumerate(rng.sample(groups(), rng.choice([1, 1, 2, 2, 3]))):
        if labels.isdisjoint(label for slot in group.slots for label in slot.labels):
            slots += [_keyed(slot, f"{number}.{slot.key}") for slot in group.slots]
            labels.update(label for slot in group.slots for label in slot.labels)
    share = rng.choice([0.4, 0.6, 0.8])
    stated = [slot for slot in slots if rng.random() < share][:_MOST] or slots[:2]
    return stated, [slot for slot in slots if slot not in stated]


_MOST = 10
"""Number of slots that a document states at most."""


def _keyed(slot: Slot, key: str) -> Slot:
    return Slot(key, slot.kind, slot.labels, slot.about, slot.says)


class Fact(NamedTuple):
    """A fact about a party: its kind, and its names in documents and in schemas."""

    kind: Kind
    printed: tuple[str, ...]
    asked: tuple[str, ...]


@cache
def _party_facts() -> tuple[Fact, ...]:
    entries = (line.split(" | ") for line in words("party_facts"))
    return tuple(Fact(parse_kind(kind), *(tuple(part.split(", ")) for part in parts)) for kind, *parts in entries)


class Party(NamedTuple):
    """A party of a document: its heading, the printed lines about it, and the values of its slots."""

    heading: str
    lines: list[str]
    slots: list[Slot]
    values: dict[str, Value]


def sample_parties(rng: Random) -> tuple[str, list[Slot], dict[str, Value]]:
    """Write a document about two or three parties of which the same sorts of facts are told, some of one of them only.

    Returns:
        The text, slots of all facts of all parties, and the values of those that are stated.
    """
    chosen = _compatible(rng.sample(range(1, len(_party_facts())), rng.randint(2, 6)))
    parties = [
        _party(number, tuple(names.split(", ")), chosen, rng)
        for number, names in enumerate(rng.choice(words("parties")).split(" | "))
    ]
    text = rng.choice(_LAYOUTS)(parties, rng)
    slots = [slot for party in parties for slot in party.slots]
    return text, slots, {key: value for party in parties for key, value in party.values.items()}


def _compatible(chosen: list[int]) -> list[int]:
    """Leave out the parts of an address if the address is chosen."""
    kinds = {_party_facts()[at].printed[0] for at in chosen}
    parts = {"street", "city", "postcode"} if "address" in kinds else set()
    return [0, *(at for at in sorted(chosen) if _party_facts()[at].printed[0] not in parts)]


def _party(number: int, names: tuple[str, ...], chosen: Sequence[int], rng: Random) -> Party:
    name = _PERSON if rng.random() < 0.35 else _party_facts()[0]
    party = Party(rng.choice(names), [], [], {})
    for at in chosen:
        fact = _party_facts()[at] if at else name
        labels = tuple(f"{each} {label}" for each in names for label in fact.asked)
        slot = Slot(f"{number}.{at}", fact.kind, labels if at else (*names, *labels))
        party.slots.append(slot)
        if at == 0 or rng.random() < 0.6:
            party.values[slot.key] = value = fact.kind.sample(rng, "label")
            party.lines.append(_line(fact, value, chosen, rng))
    return party


_PERSON = Fact(parse_kind("person"), ("name",), ("name", "full name"))


def _line(fact: Fact, value: Value, chosen: Sequence[int], rng: Random) -> str:
    """Print a fact: a name without a label; a street or town at times with what else is in its line."""
    known = {_party_facts()[at].printed[0] for at in chosen}
    name = fact.printed[0]
    if name == "name":
        return titled(value.text, rng) if fact is _PERSON else value.text
    text = labelled(fact.kind, value, rng)
    if name == "street" and known.isdisjoint(("city", "postcode")) and rng.random() < 0.6:
        text = f"{value.text}, {pools.code('#####', rng)} {pools.city(rng)}"
    if name == "city" and "postcode" not in known and rng.random() < 0.6:
        text = f"{pools.code('#####', rng)} {value.text}"
    bare = name in ("street", "city", "address") and rng.random() < 0.5
    return text if bare else f"{_cased(rng.choice(fact.printed), rng)}: {text}"


def _cased(label: str, rng: Random) -> str:
    return label.upper() if label in ("iban", "vat id") else rng.choice(_CASES)(label)


_CASES: tuple[Callable[[str], str], ...] = (str, str.capitalize, str.capitalize)


def _blocks(parties: list[Party], rng: Random) -> str:
    mark = rng.choice([":", "", ":"])
    style = rng.choice([str.capitalize, str.capitalize, str.upper, str.title])
    return "\n\n".join("\n".join([f"{style(party.heading)}{mark}", *party.lines]) for party in parties)


def _lines(parties: list[Party], rng: Random) -> str:
    gap = rng.choice([", ", ", ", "; ", " - ", " | "])
    return "\n".join(f"{party.heading.capitalize()}: {gap.join(party.lines)}" for party in parties)


def _columns(parties: list[Party], rng: Random) -> str:
    """Print the parties beside one another, as on the letterhead of an invoice."""
    blocks = [[party.heading.capitalize(), *party.lines] for party in parties]
    widths = [max(map(len, block)) + rng.randint(2, 6) for block in blocks]
    rows = zip_longest(*blocks, fillvalue="")
    padded = ("".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(row.rstrip() for row in padded)


_LAYOUTS: tuple[Callable[[list[Party], Random], str], ...] = (_blocks, _blocks, _blocks, _lines, _lines, _columns)
