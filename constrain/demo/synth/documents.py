"""Examples: a document, a schema, and the gold record of the document under the schema.

Every example is a function of ``(seed, split, index)`` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple

from constrain.demo.synth import counting, implied, layout, noise, procedural, remix, roles, template
from constrain.demo.synth.address import addressed
from constrain.demo.synth.amendments import amended
from constrain.demo.synth.family import Family, held_out_families, trained_families
from constrain.demo.synth.habits import Author, breaks_values, is_clean
from constrain.demo.synth.kinds import Person, Value
from constrain.demo.synth.layout import Document
from constrain.demo.synth.lookups import looked_up
from constrain.demo.synth.mentions import mentioned_again
from constrain.demo.synth.nested import in_groups
from constrain.demo.synth.order import Sampling
from constrain.demo.synth.questions import Question, ask_object
from constrain.demo.synth.records import Records
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import mention
from constrain.demo.synth.template import Template
from constrain.demo.synth.unanswered import partly_named, unanswered, unknown_contact
from constrain.demo.synth.withheld import can_be_withheld, withhold


class Split(str, Enum):
    """The splits of examples."""

    TRAIN = "train"
    WORDINGS = "held-out wordings"
    FAMILIES = "held-out families"


class Shot(NamedTuple):
    """A document with its record as JSON text, which a prompt gives as an example."""

    text: str
    record: str


@dataclass(frozen=True)
class Example:
    """A document with a schema and its gold record.

    Attributes:
        family: name of its family.
        shots: other documents of the family, which the prompt shows with their records.
    """

    family: str
    text: str
    schema: dict[str, Any]
    record: Any
    shots: tuple[Shot, ...] = ()

    @property
    def answer(self) -> str:
        """The record as JSON text, the target of the model."""
        return _json(self.record)


CLEAN = 0.45
"""Usual share of clean documents in training."""


def example(seed: int, split: Split, index: int, clean: float = CLEAN) -> Example:
    """Generate the example number ``index`` of a split.

    ``clean`` is the share of the documents for training that are as written: with common names and things, and
    without noise.
    """
    rng = Author(f"{seed}/{split.value}/{index}")
    rng.clean = split is Split.TRAIN and rng.random() < clean
    family, text, slots, facts, told = _SOURCES[split](rng)
    if split is Split.TRAIN and rng.random() < _AMENDED:
        text = amended(text, slots, facts, rng)
    others: list[Slot] = []
    if not rng.clean and rng.random() < 0.14:
        text, others = _among_others(text, slots, rng)
    if split is Split.TRAIN and len(slots) > 1 and not told and rng.random() < _IMPLIED:
        text, told = _with_implied(text, slots, facts, rng)
    if len(slots) > 1 and rng.random() < _WITHHELD:
        text, open_ones = _with_withheld(text, slots, facts, split is not Split.TRAIN, rng, others)
        told = list({slot.key: slot for slot in (*told, *open_ones)}.values())
    if len(slots) > 1 and rng.random() < _MENTIONED:
        text = mentioned_again(text, slots, facts, rng)
    if not rng.clean:
        text = noise.wrap(text, list(facts.values()), rng)
    if split is Split.TRAIN and len(slots) > 1 and rng.random() < _LOOKED_UP:
        told = [*told, *looked_up(text, slots, facts, rng)]
    question = _question(text, slots, facts, told, rng, others)
    shots = _shots(family, set(facts), question, rng) if split is Split.TRAIN and rng.random() < _SHOWN else ()
    return Example(family, text, question.schema, question.read(facts), shots)


_AMENDED = 0.12
"""Share of the documents that are corrected at their end."""

_LOOKED_UP = 0.2
"""Share of the documents of several slots, of those with lists, that are asked for single entries of one."""

_IMPLIED = 0.35
"""Share of the documents of several slots into which sentences about other matters are put, which imply answers."""

_WITHHELD = 0.25
"""Share of the documents of several slots that name one or two fields without telling their values."""

_MENTIONED = 0.3
"""Share of the documents of several slots that name a person or firm again by a part of the name."""

_SHOWN = 0.12
"""Share of the examples for which other documents of the family are generated; few state as much as the first."""


def _with_implied(text: str, slots: list[Slot], facts: dict[str, Value], rng: Random) -> tuple[str, Sequence[Slot]]:
    """Put in sentences about one to three other matters; return the text and their slots, and add to ``facts``."""
    labels = " ".join(label for slot in slots for label in slot.labels)
    matters = implied.all_matters() if rng.random() < 0.5 else rng.choice(implied.topics()).matters
    told = implied.tell(matters, f"{text} {labels}", rng.choice([1, 1, 2, 2, 3]), rng)
    long = [value for value in facts.values() if not value.text.isalnum()]
    text = implied.woven(text, [each.sentence for each in told if each.sentence], noise.places(text, long), rng)
    facts.update((each.slot.key, each.value) for each in told if each.value)
    return text, [each.slot for each in told]


def _with_withheld(
    text: str, slots: list[Slot], facts: dict[str, Value], held_out: bool, rng: Random, others: Sequence[Slot] = ()
) -> tuple[str, list[Slot]]:
    """Name one or two slots without telling their values; return the text and these slots.

    None are of the family of ``others``, slots of other documents in the text.
    """
    stated = [slot for slot in slots if slot.key in facts]
    silent = [slot for slot in slots if slot.key not in facts]
    foreign = unanswered(text, [*slots, *others], stated, 2, rng)
    fit = [slot for slot in rng.sample(silent, len(silent)) if can_be_withheld(slot)][: rng.choice([0, 1, 2])]
    chosen = [*fit, *filter(can_be_withheld, foreign)][: rng.choice([1, 1, 2])]
    for slot in chosen:
        text = withhold(text, slot, noise.places(text, list(facts.values())), held_out, rng)
    return text, chosen


def _shots(name: str, keys: set[str], question: Question, rng: Author) -> tuple[Shot, ...]:
    """Generate up to three other documents of a family that state at least ``keys``, with their records."""
    shots: list[Shot] = []
    for family in [_by_name()[name]] * rng.randint(1, 3) if name in _by_name() else ():
        author = Author(str(rng.random()))
        author.clean = rng.clean
        _, text, _, facts, _ = _of_family(family, family.wordings, author)
        if keys <= set(facts) and not breaks_values(author):
            shots.append(Shot(text, _json(question.read(facts))))
    return tuple(shots)


@cache
def _by_name() -> dict[str, Family]:
    return {family.name: family for family in trained_families()}


def _json(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False)


class Source(NamedTuple):
    """A document before it is surrounded: its family, its slots, their values, and slots that are asked in any case."""

    family: str
    text: str
    slots: list[Slot]
    facts: dict[str, Value]
    told: Sequence[Slot] = ()


_RICH = 300
"""Average number of characters of the wordings of a family whose documents are mostly taken as they are written."""


def _train(rng: Random) -> Source:
    form = rng.random()
    return next(source for share, source in (_CLEAN_SOURCES if is_clean(rng) else _TRAINED) if form < share)(rng)


@cache
def _weights() -> list[int]:
    """Weights of the trained families: those with long wordings count three times."""
    return [3 if _is_rich(family) else 1 for family in trained_families()]


def _is_rich(family: Family) -> bool:
    return sum(map(len, family.wordings)) > _RICH * len(family.wordings)


def _any_family(rng: Random) -> Source:
    family = rng.choices(trained_families(), _weights())[0]
    return _of_family(family, family.wordings, rng)


def _held_out_wording(rng: Random) -> Source:
    family = rng.choice([family for family in trained_families() if family.held_out])
    text, facts = _worded(family, template.parse(rng.choice(family.held_out)), rng)
    return Source(family.name, text, list(family.slots), facts)


def _held_out_family(rng: Random) -> Source:
    family = rng.choice(held_out_families())
    return _of_family(family, family.wordings + family.held_out, rng)


_SOURCES: dict[Split, Callable[[Random], Source]] = {
    Split.TRAIN: _train,
    Split.WORDINGS: _held_out_wording,
    Split.FAMILIES: _held_out_family,
}


def _of_family(family: Family, wordings: tuple[str, ...], rng: Random) -> Source:
    """Generate a document: half the time from a wording, else from a mixture of wordings, or from a generic layout."""
    form = rng.random()
    as_written, recombined = (0.75, 0.87) if _is_rich(family) else (0.5, 0.75)
    if is_clean(rng):
        as_written = 1
    if form < as_written:
        text, facts = _worded(family, template.parse(rng.choice(wordings)), rng)
    elif form < recombined:
        text, facts = _worded(family, remix.recombined(wordings, rng), rng)
    else:
        text, facts = _laid_out(_some(list(family.slots), rng), rng)
    return Source(family.name, text, list(family.slots), facts)


def _worded(family: Family, wording: Template, rng: Random) -> Document:
    record = Sampling(family.slots, rng)
    wording = addressed(wording, {slot.key for slot in family.slots if isinstance(slot.kind, Person)}, rng)
    form = 1 if is_clean(rng) else rng.random()
    change = next((change for share, change in _CHANGES if form < share), None)
    words = counting.Words(partial(change, rng=rng) if change else str)

    def fill(key: str, mode: str) -> str:
        value = mention(key, rng) if key.startswith("=") else record.sample(key, mode)
        words.filled(value.data)
        return value.text

    return template.render(wording, rng, fill, words.say), record.values


#: Changes of the words around the values, with their cumulative shares.
_CHANGES = ((0.06, remix.worn), (0.14, remix.misspelled), (0.34, remix.reworded))


def _among_others(text: str, slots: Sequence[Slot], rng: Random) -> tuple[str, list[Slot]]:
    """Put a document among others of families with other labels: a thread, a forwarded message, a longer file.

    Return the text, and the slots of the others.
    """
    labels = {label for slot in slots for label in slot.labels}
    texts = [text]
    others: list[Slot] = []
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 5, 8])):
        family = rng.choices(trained_families(), _weights())[0]
        if labels.isdisjoint(label for slot in family.slots for label in slot.labels):
            other, _ = _worded(family, template.parse(rng.choice(family.wordings)), rng)
            texts.insert(rng.randint(0, len(texts)), other)
            others += family.slots
    return rng.choice(_BETWEEN).join(texts), others


_BETWEEN = (
    "\n\n",
    "\n\n---\n\n",
    "\n\n-----Original Message-----\n",
    "\n\n---------- Forwarded message ----------\n",
    "\n\n* * *\n\n",
    "\n\f\n",
    "\n\nAttachment:\n",
    "\n\n==========\n\n",
)


def _collage(rng: Random) -> Source:
    """Generate a document with slots of several families, so that slots occur in other contexts."""
    families = rng.sample(trained_families(), rng.randint(1, 5))
    slots: list[Slot] = []
    labels: set[str] = set()
    for index in range(rng.randint(3, 10)):
        slot = rng.choice(rng.choice(families).slots)
        if labels.isdisjoint(slot.labels):
            labels.update(slot.labels)
            slots.append(Slot(f"k{index}", slot.kind, slot.labels, slot.about, slot.says))
    text, facts = _laid_out(_some(slots, rng), rng)
    return Source("collage", text, slots, facts)


def _mosaic(rng: Random) -> Source:
    """Generate a document of sentences of several families, whose slots have different labels."""
    slots: list[Slot] = []
    labels: set[str] = set()
    pieces: list[Template] = []
    for number in range(rng.randint(2, 5)):
        family = rng.choices(trained_families(), _weights())[0]
        own = [slot for slot in family.slots if labels.isdisjoint(slot.labels)]
        labels.update(label for slot in family.slots for label in slot.labels)
        keys = {slot.key for slot in own}
        found = [p for p in remix.fragments(rng.choice(family.wordings), clauses=False) if template.keys(p) <= keys]
        pieces += [remix.named(piece, f"{number}.") for piece in rng.sample(found, min(len(found), rng.randint(1, 4)))]
        slots += [replace(slot, key=f"{number}.{slot.key}", after=f"{number}.{slot.after}") for slot in own]
    if not pieces:
        return _mosaic(rng)
    text, facts = _worded(
        Family("mosaic", tuple(slots)), tuple(node for piece in pieces for node in (*piece, rng.choice("  \n"))), rng
    )
    asked = [slot for slot in slots if slot.key in facts or rng.random() < 0.15]
    return Source("mosaic", text, asked, facts)


def _single(rng: Random) -> Source:
    """Generate a sentence or two with one value, for schemas without field names."""
    family = rng.choices(trained_families(), _weights())[0]
    slots = [slot for slot in family.slots if slot.says and not isinstance(slot.kind, Records)]
    if not slots:
        return _single(rng)
    slot = rng.choice(slots)
    value = slot.kind.sample(rng)
    text = counting.stated(rng.choice(slot.says), value.text, value.data)
    if rng.random() < 0.2:
        text = f"{text} {rng.choice(slot.labels).capitalize()}:"
    return Source("single", text, [slot], {slot.key: value})


def _topical(rng: Random) -> Source:
    """Generate a document of sentences about matters of one topic, perhaps with some labelled values."""
    topic = rng.choice(implied.topics())
    family = rng.choices(trained_families(), _weights())[0]
    slots = _some([slot for slot in family.slots if not isinstance(slot.kind, Records)] or [*family.slots], rng)[:5]
    layouts = [layout.form, layout.form, layout.prose, layout.mixed]
    form, facts = rng.choice(layouts)(slots[:3], rng) if rng.random() < 0.6 else ("", {})
    labels = " ".join(label for slot in slots for label in slot.labels)
    told = implied.tell(topic.matters, f"{form} {labels}", rng.randint(3, 8), rng)
    sentences = [each.sentence for each in told if each.sentence]
    parts = [topic.title(rng), form, rng.choice(_SEPARATORS).join(rng.sample(sentences, len(sentences)))]
    facts.update((each.slot.key, each.value) for each in told if each.value)
    return Source("topical", "\n\n".join(filter(None, parts)), slots, facts, [each.slot for each in told])


_SEPARATORS = (" ", " ", " ", " ", "\n", "\n\n", "\n- ")


def _in_roles(rng: Random) -> Source:
    """Generate a document with values of one kind in several roles, of which some are asked for in vain."""
    if rng.random() < 0.4:
        text, slots, facts = roles.sample_parties(rng)
        silent = [slot for slot in slots if slot.key not in facts]
    else:
        stated, silent = roles.sample_roles(rng)
        slots = [*stated, *silent]
        text, facts = rng.choice([layout.form, layout.prose, layout.prose, layout.mixed])(stated, rng)
    return Source("roles", text, slots, facts, rng.sample(silent, min(len(silent), rng.choice([0, 1, 1, 2]))))


def _procedural(rng: Random) -> Source:
    slots = procedural.random_slots(rng)
    if rng.random() < 0.3:
        slots = [*slots[: rng.randint(1, 5)], procedural.random_table(rng)]
    if rng.random() < 0.15:
        slots.append(replace(rng.choice(rng.choice(trained_families()).slots), key="other"))
    text, facts = _laid_out(_some(slots, rng), rng)
    return Source("procedural", text, slots, facts)


def _in_groups(rng: Random) -> Source:
    """Generate a document with a list of groups of entries of a family, and some other slots of that family."""
    family = rng.choices(trained_families(), _weights())[0]
    lists = [slot for slot in family.slots if isinstance(slot.kind, Records)]
    groups = in_groups(rng.choice(lists), rng) if lists else None
    others = [slot for slot in family.slots if not isinstance(slot.kind, Records)]
    if groups is None or len(others) < 2:
        return _in_groups(rng)
    slots = [*rng.sample(others, rng.randint(1, min(5, len(others)))), groups]
    text, facts = rng.choice([layout.form, layout.prose, layout.mixed])(slots, rng)
    return Source("groups", text, slots, facts)


#: Sources of documents for training, with their cumulative shares: all of them, and those of clean documents.
_TRAINED = (
    (0.62, _any_family), (0.69, _topical), (0.78, _in_roles), (0.83, _mosaic), (0.88, _collage), (0.91, _single),
    (0.93, _in_groups), (1.0, _procedural),
)  # fmt: skip
_CLEAN_SOURCES = ((0.76, _any_family), (0.87, _topical), (0.90, _in_groups), (1.0, _in_roles))


def _laid_out(slots: list[Slot], rng: Random) -> Document:
    layouts = [layout.form, layout.form, layout.prose, layout.prose, layout.mixed, layout.bare]
    return rng.choice(layouts)(slots, rng)


def _some(slots: list[Slot], rng: Random) -> list[Slot]:
    """Select most of the slots, at most ten, in random order."""
    chosen = [slot for slot in slots if rng.random() < 0.88] or slots[:1]
    return rng.sample(chosen, min(len(chosen), 10))


_FOREIGN = 0.3
"""Share of the documents that are asked for values of slots that are not theirs."""

_PARTLY = 0.3
"""Share of the documents that are asked for values of slots of which they have a word without the value."""

_CONTACT = 0.12
"""Share of the documents that are asked how to reach somebody, where they do not say."""


def _question(
    text: str,
    slots: list[Slot],
    facts: dict[str, Value],
    told: Sequence[Slot],
    rng: Random,
    others: Sequence[Slot] = (),
) -> Question:
    """Generate a schema over ``told`` and some of the slots: most are in the document, a few are not.

    None are of the family of ``others``, of which the text may state values, too.
    """
    stated = [slot for slot in slots if slot.key in facts]
    silent = [slot for slot in slots if slot.key not in facts]
    if len(slots) == len(stated) == 1 and rng.random() < 0.8:
        ask = slots[0].kind.ask(rng)
        return Question(_titled(ask.schema, slots[0], rng), lambda facts: ask.read(facts[slots[0].key]))
    tables = [slot for slot in stated if isinstance(slot.kind, Records)]
    if tables and rng.random() < 0.06:
        table = rng.choice(tables)
        ask = table.kind.ask(rng)
        return Question(ask.schema, lambda facts: ask.read(facts[table.key]))
    asked = rng.sample(stated, rng.randint(min(2, len(stated)), len(stated)))
    asked += [slot for slot in silent if slot not in told and rng.random() < 0.3]
    if rng.random() < _FOREIGN:
        asked += unanswered(text, [*slots, *others], stated, rng.choice([1, 1, 2, 3]), rng)
    if rng.random() < _PARTLY:
        asked += partly_named(text, [*slots, *others, *told, *asked], rng.choice([1, 1, 2]), rng)
    if rng.random() < _CONTACT:
        asked += unknown_contact(text, stated, rng)
    asked += told
    if rng.random() < 0.5:
        rng.shuffle(asked)
    else:
        asked = sorted(asked, key=lambda slot: slots.index(slot) if slot in slots else rng.randrange(len(slots)))
    return ask_object(asked, set(facts), rng)


def _titled(schema: dict[str, Any], slot: Slot, rng: Random) -> dict[str, Any]:
    """Sometimes say in a description what a value without a name is."""
    return {**schema, "description": rng.choice(slot.labels)} if rng.random() < 0.4 else schema
