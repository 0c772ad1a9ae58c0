"""Random schemas over slots, and gold records under them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from constrain.demo.synth import naming, pools
from constrain.demo.synth.habits import breaks_values
from constrain.demo.synth.kinds import Ask, Schema, Value, verbatim
from constrain.demo.synth.slots import Slot

Facts = Mapping[str, Value]
"""Values of the slots of a document, by key."""

Read = Callable[[Facts], Any]

_ABSENT = object()
_QUOTE: Schema = {"type": "string", "x-verbatim": {"source": "text"}}
_GROUPS = ("details", "info", "data", "summary", "header", "meta", "main", "general", "attributes", "record", "context")


@dataclass(frozen=True)
class Field:
    """A property of an object schema; ``read`` returns its gold value, or ``_ABSENT``."""

    name: str
    schema: Schema
    required: bool
    read: Read


@dataclass(frozen=True)
class Question:
    """A schema, with a function from the facts of a document to the gold record."""

    schema: Schema
    read: Read


@dataclass(frozen=True)
class Manner:
    """How a schema asks for values.

    Attributes:
        style: style of the field names.
        quoted: share of the copied strings that are asked for as quotes.
        evident: share of the other values that are asked for with evidence.
        described: share of the fields with a description.
    """

    style: naming.Style
    quoted: float = 0.0
    evident: float = 0.0
    described: float = 0.2

    @classmethod
    def sample(cls, rng: Random) -> Manner:
        quotable = not breaks_values(rng)
        quoted = rng.choice([0.5, 1.0]) if quotable and rng.random() < 0.25 else 0.0
        evident = rng.choice([0.4, 1.0]) if quotable and rng.random() < 0.2 else 0.0
        return cls(naming.style(rng), quoted, evident, rng.choice([0.0, 0.1, 0.5, 0.9]))


def ask_object(slots: Sequence[Slot], certain: set[str], rng: Random, nest: bool = True) -> Question:
    """Generate an object schema with a field for every slot.

    Args:
        certain: keys of the slots that the document surely states; the other fields may be left out or null.
        nest: whether some fields may move into an object of their own.
    """
    manner = Manner.sample(rng)
    fields: list[Field] = []
    labels = Counter(label for slot in slots for label in set(slot.labels))
    for slot in slots:
        fields += _fields(slot, labels, slot.key in certain, manner, rng)
    fields = list({field.name: field for field in reversed(fields)}.values())[::-1]
    if nest and len(fields) > 3 and rng.random() < 0.2:
        fields = _nested(fields, manner.style, rng)
    return _object(fields, rng)


def _fields(slot: Slot, labels: Counter[str], certain: bool, manner: Manner, rng: Random) -> list[Field]:
    own = [label for label in slot.labels if labels[label] == 1] or list(slot.labels)
    label = rng.choice(own[:1] * 2 + own)
    if (other := naming.paraphrased(label, rng)) not in labels:
        label = other
    fields = [_field(slot, label, slot.kind.ask(rng), certain, manner, rng)]
    if rng.random() < 0.08 and (parts := slot.kind.parts(rng)):
        part, ask = rng.choice(parts)
        part_label = part if rng.random() < 0.3 and part.startswith("currency") else f"{label} {part}"
        fields.append(_field(slot, part_label, ask, certain, manner, rng))
    return fields


def _field(slot: Slot, label: str, ask: Ask, certain: bool, manner: Manner, rng: Random) -> Field:
    is_number = ask.schema.get("type") in ("number", "integer")
    measured = naming.with_unit(label, slot.kind, rng) if is_number else label
    name = naming.field_name(measured, slot.kind, manner.style, rng)
    ask = _with_evidence(ask, manner, rng)
    schema = dict(ask.schema)
    unnamed = rng.random() < 0.03
    if unnamed:
        name = manner.style([rng.choice(["field", "x", "value", "f", "item", "col"]), str(rng.randint(1, 12))])
    if unnamed or rng.random() < manner.described:
        schema.setdefault("description", _description(slot, label, unnamed, rng))
    elif is_number and rng.random() < 0.06 and (unit := naming.unit_of(slot.kind, rng)):
        schema.setdefault(
            "description", rng.choice(["in {}", "{}", "number of {}"][: 3 if unit.endswith("s") else 2]).format(unit)
        )
    nullable, required = rng.random() < 0.3, rng.random() < 0.85
    may_be_empty = schema.get("type") == "array" and "minItems" not in schema and rng.random() < 0.4
    if not certain and not nullable and required and not may_be_empty:
        nullable = rng.random() < 0.8
        required = nullable and rng.random() < 0.85
    if nullable:
        schema = _or_null(schema, rng)
    missing = None if nullable else [] if may_be_empty and required else _ABSENT
    return Field(name, schema, required, lambda facts: ask.read(facts[slot.key]) if slot.key in facts else missing)


def _with_evidence(ask: Ask, manner: Manner, rng: Random) -> Ask:
    """Ask for a copied string as a quote, or for another single value with a quote as evidence, or return ``ask``."""
    kind = ask.schema.get("type")
    if kind == "string" and ask.read is verbatim:
        return Ask(_QUOTE, verbatim) if rng.random() < manner.quoted else ask
    if kind == "array" and ask.schema["items"] == {"type": "string"}:
        return Ask({**ask.schema, "items": _QUOTE}, ask.read) if rng.random() < manner.quoted else ask
    if kind in ("object", "array") or rng.random() >= manner.evident:
        return ask
    return Ask({**ask.schema, "x-evidence": True}, lambda value: {"quote": value.text, "value": ask.read(value)})


def _description(slot: Slot, label: str, alone: bool, rng: Random) -> str:
    if alone:
        return label
    if slot.about and rng.random() < 0.6:
        return slot.about
    other = rng.choice(slot.labels) if label in slot.labels else label
    return rng.choice(["the {}", "{}", "The {}.", "{} as stated", "{} in the text"]).format(other)


def _or_null(schema: Schema, rng: Random) -> Schema:
    """Allow null, and say at times in the description when a value is null."""
    if "description" in schema and rng.random() < 0.12:
        schema = {**schema, "description": f"{schema['description'].rstrip('.')}{rng.choice(_WHEN_NULL)}"}
    if "enum" in schema and "x-evidence" not in schema and rng.random() < 0.4:
        named = {"type": [schema["type"], "null"]} if "type" in schema else {}
        return {**schema, **named, "enum": [*schema["enum"], None]}
    plain = isinstance(schema.get("type"), str) and schema.keys().isdisjoint(("enum", "x-evidence"))
    if plain and rng.random() < 0.4:
        return {**schema, "type": [schema["type"], "null"]}
    outer = {key: schema.pop(key) for key in ("description",) if key in schema}
    return {"anyOf": [schema, {"type": "null"}], **outer}


_WHEN_NULL = (
    "; null if not stated", ", or null", " (null if there is none)", ", if any", ". Null if unknown.",
    "; null where the text leaves it open", " if given, else null",
)  # fmt: skip


def _nested(fields: list[Field], style: naming.Style, rng: Random) -> list[Field]:
    start = rng.randrange(len(fields) - 1)
    stop = rng.randint(start + 2, min(start + 4, len(fields)))
    name = rng.choice(_GROUPS) if rng.random() < 0.6 else pools.noun(rng)
    if name in {field.name for field in fields}:
        return fields
    inner = _object(fields[start:stop], rng)
    return [*fields[:start], Field(style([name]), inner.schema, True, inner.read), *fields[stop:]]


def _object(fields: list[Field], rng: Random) -> Question:
    schema: Schema = {
        "type": "object",
        "properties": {field.name: field.schema for field in fields},
        "required": [field.name for field in fields if field.required],
    }
    if rng.random() < 0.7:
        schema["additionalProperties"] = False

    def read(facts: Facts) -> dict[str, Any]:
        values = ((field.name, field.read(facts)) for field in fields)
        return {name: value for name, value in values if value is not _ABSENT}

    return Question(schema, read)
