"""Generic layouts of documents: forms, key-value lines, and sentences over any slots."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random

from constrain.demo.synth import counting, kinds, moments, naming, pools, quantities, remix
from constrain.demo.synth.address import labelled
from constrain.demo.synth.kinds import Value
from constrain.demo.synth.order import Sampling
from constrain.demo.synth.records import Records
from constrain.demo.synth.slots import Slot

Document = tuple[str, dict[str, Value]]
"""A text, and the values of its slots."""

_FRAMES = (
    "The {label} is {value}.", "The {label} is {value}.", "{Label}: {value}.", "As {label} we noted {value}.",
    "The {label} was given as {value}.", "{value} is the {label}.", "For the {label}, see {value}.",
    "Its {label} is {value}.", "With {value} as the {label}, all is set.", "We have {value} down as the {label}.",
    "The {label} has been set to {value}.", "Note that the {label} is now {value}.", "Our {label}: {value}.",
    "It comes with a {label} of {value}.", "The {label} ({value}) was confirmed.", "{value} was recorded as {label}.",
    "{Label} is {value}.", "They reported {value} for the {label}.", "The {label} reads {value}.",
    "Its {label} stands at {value}.",
    "On the {label}: {value}.", "The {label} turned out to be {value}.", "{value} (the {label}) needs no comment.",
)  # fmt: skip
_JOINS = (" ", " ", " ", "\n", "\n\n")

#: A place for a value in quotes, or after a title or in a word.
_QUOTED = re.compile(r"[\"'“‘\w@/-]\{\}|(Mr|Mrs|Ms|Dr|Prof|Frau|Herr)\.? \{\}")


def form(slots: Sequence[Slot], rng: Random) -> Document:
    """Write labels with their values, on lines or in one row, in one of many syntaxes."""
    record = Sampling(slots, rng)
    return _form(slots, record, rng), record.values


def _form(slots: Sequence[Slot], record: Sampling, rng: Random) -> str:
    values = {slot.key: record.sample(slot.key, "label") for slot in slots}
    style = naming.print_style(rng)
    pairs = [
        (naming.printed(_label(slot, rng), style, rng), labelled(slot.kind, values[slot.key], rng)) for slot in slots
    ]
    blocks = any("\n" in text for _, text in pairs)
    text = rng.choice(_BLOCK_FORMS if blocks else _BLOCK_FORMS + _LINE_FORMS)(pairs, rng)
    titles = ["", "", pools.topic(rng).title(), pools.noun(rng).upper(), f"# {pools.topic(rng).capitalize()}"]
    title = rng.choice(titles)
    return f"{title}\n{text}" if title else text


def prose(slots: Sequence[Slot], rng: Random) -> Document:
    """Write a sentence for every slot, in random order, mixed with sentences without content."""
    record = Sampling(slots, rng)
    return _prose(slots, record, rng), record.values


def _prose(slots: Sequence[Slot], record: Sampling, rng: Random) -> str:
    sentences = [_sentence(slot, record, rng) for slot in rng.sample(list(slots), len(slots))]
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        sentences.insert(rng.randint(0, len(sentences)), pools.filler(rng))
    join = rng.choice(_JOINS)
    if rng.random() < 0.12:
        return "\n".join(rng.choice(["- ", "* "]) + sentence for sentence in sentences)
    return join.join(sentences)


def mixed(slots: Sequence[Slot], rng: Random) -> Document:
    """Write some slots as sentences, the others as a form."""
    record = Sampling(slots, rng)
    cut = rng.randint(1, max(1, len(slots) - 1))
    parts = [_prose(slots[:cut], record, rng)]
    parts += [_form(slots[cut:], record, rng)] if cut < len(slots) else []
    rng.shuffle(parts)
    return "\n\n".join(parts), record.values


def bare(slots: Sequence[Slot], rng: Random) -> Document:
    """Write values without labels, at most one of each kind, which can be recognised by their form."""
    by_form: dict[object, Slot] = {}
    for slot in slots:
        form_key = _form_key(slot)
        if form_key is not None:
            by_form.setdefault(form_key, slot)
    if len(by_form) < 2:
        return form(slots, rng)
    record = Sampling(slots, rng)
    texts = [f"{_preposition(slot, rng)}{record.sample(slot.key).text}" for slot in by_form.values()]
    return remix.shuffled_join(texts, rng), record.values


def _form_key(slot: Slot) -> object:
    """Return a key of the form of a slot's values; ``None`` if they cannot be recognised without a label."""
    kind = slot.kind
    if isinstance(kind, kinds.Text):
        return kind.name if kind.name in _RECOGNISABLE else None
    if isinstance(kind, quantities.Integer | quantities.Decimal):
        return kind.unit or None
    if isinstance(kind, kinds.Enum | kinds.Boolean):
        return slot.key
    return None if isinstance(kind, Records | kinds.Listing) else type(kind)


_RECOGNISABLE = "company city email phone url code country job topic version path ip uuid".split()
_BEFORE: dict[object, tuple[str, ...]] = {
    "company": ("at ", "from ", "by ", "for "),
    "city": ("in ", "from ", "near ", "to "),
    "country": ("in ", "from "),
    "job": ("as ", "a "),
    kinds.Person: ("by ", "with ", "for ", "from "),
    moments.Date: ("on ", "since ", "by ", "until "),
    moments.Time: ("at ", "from "),
    quantities.Money: ("for ", "of ", "at "),
    kinds.Address: ("at ", "in "),
}


def _preposition(slot: Slot, rng: Random) -> str:
    return rng.choice(_BEFORE.get(_form_key(slot), ("",))) if rng.random() < 0.4 else ""


def _label(slot: Slot, rng: Random) -> str:
    return rng.choice(slot.labels[:1] * 2 + slot.labels)


def _sentence(slot: Slot, record: Sampling, rng: Random) -> str:
    label = _label(slot, rng)
    if isinstance(slot.kind, Records):
        value = record.sample(slot.key, "inline" if slot.kind.inline and rng.random() < 0.4 else "")
        name = label.capitalize()
        return f"{name}:\n{value.text}" if "\n" in value.text else f"{name}: {value.text}."
    if slot.says and rng.random() < 0.75:
        value = record.sample(slot.key)
        sentence = rng.choice(slot.says)
        text = value.text if _QUOTED.search(sentence) else labelled(slot.kind, value, rng)
        return counting.stated(sentence, text, value.data)
    if isinstance(slot.kind, kinds.Boolean) and rng.random() < 0.6:
        return f"{record.sample(slot.key).capitalised().text}."
    text = labelled(slot.kind, record.sample(slot.key, "label"), rng)
    return rng.choice(_FRAMES).format(label=label, Label=label.capitalize(), value=text)


Pairs = list[tuple[str, str]]


def _separated(pairs: Pairs, rng: Random) -> str:
    mark = rng.choice([": ", ": ", ": ", " : ", " - ", " = ", "=", "\t", " -> ", " … ", ":  ", ": \t"])
    bullet = rng.choice(["", "", "", "", "- ", "* ", "• "])
    gap = rng.choice(["\n", "\n", "\n", "\n\n"])
    return gap.join(f"{bullet}{label}{mark}{_indented(text)}" for label, text in pairs)


def _bold(pairs: Pairs, rng: Random) -> str:
    left, right = rng.choice(
        [("**", ":** "), ("*", "*: "), ("**", "**: "), ("__", "__ "), ("[", "] "), ("<b>", "</b> ")]
    )
    return "\n".join(f"{left}{label}{right}{_indented(text)}" for label, text in pairs)


def _headed(pairs: Pairs, rng: Random) -> str:
    mark = rng.choice(["", ":", "\n---", " >"])
    return "\n\n".join(f"{label}{mark}\n{text}" for label, text in pairs)


def _aligned(pairs: Pairs, rng: Random) -> str:
    width = max(len(label) for label, _ in pairs) + rng.randint(1, 4)
    fill = rng.choice([" ", " ", "."])
    return "\n".join(f"{label:{fill}<{width}}{' ' if fill == '.' else ''}{_indented(text)}" for label, text in pairs)


def _tagged(pairs: Pairs, rng: Random) -> str:
    return "\n".join(f"<{label.replace(' ', '_')}>{text}</{label.replace(' ', '_')}>" for label, text in pairs)


def _row(pairs: Pairs, rng: Random) -> str:
    mark, gap = rng.choice(
        [(": ", "; "), (": ", " | "), ("=", " "), (" ", ", "), (": ", ". "), ("=", "; "), (" - ", " / ")]
    )
    return gap.join(f"{label.replace(' ', '_') if mark == '=' else label}{mark}{text}" for label, text in pairs)


def _json(pairs: Pairs, rng: Random) -> str:
    return json.dumps(dict(pairs), ensure_ascii=False, indent=rng.choice([None, 2]))


def _table(pairs: Pairs, rng: Random) -> str:
    return "\n".join(f"| {label} | {text} |" for label, text in pairs)


def _indented(text: str) -> str:
    return "\n" + text if "\n" in text else text


Form = Callable[[Pairs, Random], str]
_BLOCK_FORMS: tuple[Form, ...] = (_separated, _separated, _separated, _separated, _bold, _headed, _aligned)
_LINE_FORMS: tuple[Form, ...] = (_tagged, _row, _row, _json, _table)
