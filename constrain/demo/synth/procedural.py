"""Random families: any words as labels, any kinds as values.

They keep the model from learning forms by heart: what it can learn here is to match a field name with a label of the
text.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random

from constrain.demo.synth import choices, kinds, pools, quantities
from constrain.demo.synth.kinds import Kind
from constrain.demo.synth.records import Records
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import parse_kind

_KINDS: tuple[tuple[str, str, int], ...] = (
    ("person", "name person contact owner", 8),
    ("company", "company firm supplier vendor", 6),
    ("product", "product item model article", 6),
    ("city", "city place location town", 5),
    ("country", "country", 2),
    ("address", "address", 2),
    ("email", "email mail address", 3),
    ("phone", "phone telephone number", 3),
    ("url", "link url page website", 2),
    ("code", "number code id reference", 12),
    ("topic", "title subject topic summary reason", 8),
    ("title", "title name heading", 3),
    ("word", "name label title", 6),
    ("noun", "type kind category", 5),
    ("adjective", "state type class colour", 4),
    ("job", "role job position", 3),
    ("food", "ingredient dish food", 2),
    ("handle", "user login handle", 2),
    ("version", "version release", 2),
    ("path", "path file", 2),
    ("package", "package name module", 2),
    ("ip", "ip address host", 1),
    ("uuid", "uuid id key", 1),
    ("date", "date day", 9),
    ("time", "time hour", 4),
    ("stamp", "timestamp time date", 3),
    ("money 1 50000", "price cost amount fee total", 8),
    ("int 0 99", "count number quantity", 7),
    ("int 1 100000", "number count size total", 5),
    ("num 0 100 1", "level value score ratio", 5),
    ("num -40 60 1 °C", "temperature", 2),
    ("num 0 100 1 %", "percentage share rate", 3),
)
_UNITS = "kg g km m cm mm l ml h min s ms MB GB kW V A bar Hz rpm t m² ha pcs days weeks years pages".split()


def random_slots(rng: Random, low: int = 2, high: int = 10) -> list[Slot]:
    """Generate slots with random, pairwise distinct labels, some of them similar."""
    slots: list[Slot] = []
    taken: set[frozenset[str]] = set()
    for index in range(rng.randint(low, high)):
        kind, tails = random_kind(rng)
        label = _label(tails, [slot.labels[0] for slot in slots], rng)
        words = frozenset(label.split())
        if any(words <= other or other <= words for other in taken):
            continue
        taken.add(words)
        slots.append(Slot(f"k{index}", kind, _variants(label, rng)))
    return slots


def random_table(rng: Random) -> Slot:
    """Generate a slot of a table with random columns."""
    columns = [slot for slot in random_slots(rng, 2, 5) if not isinstance(slot.kind, kinds.Listing)]
    if not columns:
        return random_table(rng)
    label = rng.choice(
        ["rows", "entries", "records", "items", "list", "table", f"{pools.noun(rng)}s", f"{pools.noun(rng)} list"]
    )
    holes = [f"{{{column.key}:label}}" for column in columns]
    labelled = [f"{column.labels[0]} {hole}" for column, hole in zip(columns, holes, strict=True)]
    mark = rng.choice(["- ", "* ", "", "• ", "> "])
    rows = [mark + rng.choice([", ", " - ", " / ", "; "]).join(labelled)]
    if len({type(column.kind) for column in columns}) == len(columns) and rng.random() < 0.5:
        rows = [mark + rng.choice([", ", " - ", ": ", " | "]).join(holes)]
    return Slot("rows", Records(tuple(columns), 1, 5, tuple(row.replace(">", "\\>") for row in rows)), (label,))


def random_kind(rng: Random) -> tuple[Kind, list[str]]:
    """Sample a kind, with words that often occur in labels of such values."""
    form = rng.random()
    if form < 0.1:
        return _random_enum(rng), ["type", "status", "category", "level", "class", "state", "mode"]
    if form < 0.16:
        label = pools.adjective(rng)
        return kinds.Boolean((label, f"is {label}"), (f"not {label}", f"is not {label}")), [
            "flag",
            "enabled",
            "required",
            "active",
        ]
    if form < 0.22:
        return quantities.Integer(0, rng.choice([20, 300, 5000]), rng.choice(_UNITS)), [
            "weight",
            "length",
            "size",
            "capacity",
        ]
    if form < 0.28:
        return quantities.Decimal(0, rng.choice([5, 60, 900]), rng.choice([1, 2, 3]), rng.choice(_UNITS)), [
            "weight",
            "power",
            "width",
        ]
    spec, tails, _ = rng.choices(_KINDS, [weight for *_, weight in _KINDS])[0]
    kind = parse_kind(spec)
    if 0.34 < form < 0.37:
        return rng.choice([choices.Weekdays(), choices.Choices(_random_enum(rng), 1, 4)]), ["days", "options", "types"]
    if form < 0.34 and isinstance(kind, kinds.Text):
        return kinds.Listing(kind, 1, 5), [f"{tail}s" for tail in tails.split()]
    return kind, tails.split()


def _random_enum(rng: Random) -> kinds.Enum:
    """Sample classes of any words, or, by meaning, of things whose class is not in the text."""
    if rng.random() < 0.5:
        classes = rng.sample(sorted(_classes()), rng.randint(2, 7))
        return kinds.Enum({name: _classes()[name] for name in classes}, by_meaning=True)
    make = rng.choice([pools.adjective, pools.noun, pools.verb, pools.coined])
    options = {make(rng) for _ in range(rng.randint(2, 6))}
    return kinds.Enum({option: (option,) for option in sorted(options)})


def _label(tails: list[str], others: list[str], rng: Random) -> str:
    tail = rng.choice(tails)
    form = rng.random()
    if others and form < 0.2:
        return f"{rng.choice(others).split()[0]} {tail}"
    if form < 0.3:
        return tail
    if form < 0.55:
        return f"{pools.noun(rng)} {tail}"
    if form < 0.65:
        return f"{pools.adjective(rng)} {tail}"
    if form < 0.75:
        return f"{pools.adjective(rng)} {pools.noun(rng)}"
    if form < 0.85:
        return pools.noun(rng)
    if form < 0.92:
        return f"{pools.noun(rng)} {pools.noun(rng)}"
    if form < 0.96:
        return f"{pools.verb(rng)} {tail}"
    return pools.coined(rng)


@cache
def _classes() -> dict[str, tuple[str, ...]]:
    """Members of classes, such as a robin of birds; those of several classes are left out."""
    lines = [line.split(": ") for line in pools.words("classes")]
    counts = Counter(member for _, members in lines for member in members.split(", "))
    members = {name: tuple(m for m in text.split(", ") if counts[m] == 1 and m not in name) for name, text in lines}
    return {name: found for name, found in members.items() if len(found) > 3}


def _variants(label: str, rng: Random) -> tuple[str, ...]:
    """Return the label, and sometimes a variant of it."""
    words = label.split()
    if rng.random() < 0.4 and (known := [word for word in words if word in pools.synonyms()]):
        word = rng.choice(known)
        return (label, label.replace(word, rng.choice(pools.synonyms()[word])))
    if len(words) < 2 or rng.random() < 0.5:
        return (label,)
    other = [
        f"{words[-1]} of {' '.join(words[:-1])}",
        f"{words[-1]} of the {' '.join(words[:-1])}",
        f"{rng.choice(['current', 'main', 'new', 'the', 'our'])} {label}",
        words[0],
    ]
    return (label, label, rng.choice(other))
