"""Field names of schemas and printed labels of documents, derived from a label."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from constrain.demo.synth import kinds, moments, pools, quantities, spoken
from constrain.demo.synth.kinds import Kind

Style = Callable[[list[str]], str]

_STYLES: tuple[tuple[Style, int], ...] = (
    (lambda w: "_".join(w), 56),
    (lambda w: w[0] + "".join(map(str.capitalize, w[1:])), 20),
    (lambda w: "".join(map(str.capitalize, w)), 6),
    (lambda w: " ".join(w).capitalize(), 4),
    (lambda w: " ".join(w), 4),
    (lambda w: "-".join(w), 4),
    (lambda w: "_".join(w).upper(), 3),
    (lambda w: "".join(w), 3),
)
_SHORT = {
    "number": ("no", "num", "nr"), "quantity": ("qty",), "reference": ("ref",), "identifier": ("id",),
    "amount": ("amt",), "address": ("addr",), "department": ("dept",), "telephone": ("tel",),
    "temperature": ("temp",), "description": ("desc",),
    "average": ("avg",), "maximum": ("max",), "minimum": ("min",), "version": ("ver",), "duration": ("dur",),
    "organisation": ("org",), "category": ("cat",), "percentage": ("pct",), "account": ("acct",), "document": ("doc",),
    "message": ("msg",), "position": ("pos",), "information": ("info",), "delivery": ("dlv",), "customer": ("cust",),
    "transaction": ("txn",), "manager": ("mgr",), "appointment": ("appt",), "temporary": ("tmp",), "source": ("src",),
}  # fmt: skip
_TAILS: dict[type[Kind], tuple[str, ...]] = {
    moments.Date: ("date", "on", "day"),
    moments.Time: ("time", "at"),
    kinds.Person: ("name", "person", "full name"),
    quantities.Money: ("amount", "value"),
    kinds.Listing: ("list",),
    moments.Stamp: ("at", "time", "timestamp"),
}


def style(rng: Random) -> Style:
    """Choose a style of field names for one schema."""
    return rng.choices([s for s, _ in _STYLES], [weight for _, weight in _STYLES])[0]


def field_name(label: str, kind: Kind, style: Style, rng: Random) -> str:
    """Write a label such as ``date of issue`` as a field name."""
    words = label.replace("/", " ").replace("-", " ").lower().split()
    if rng.random() < 0.5 and len(words) > 2:
        words = [word for word in words if word not in ("of", "the", "a", "for", "by", "to", "on")] or words
    if rng.random() < 0.12:
        words = [rng.choice(_SHORT.get(word, (word,))) for word in words]
    tails = _TAILS.get(type(kind), ())
    if tails and rng.random() < 0.12 and not set(words) & {"date", "time", "name", "amount", "list", "at", "on"}:
        words += rng.choice(tails).split()
    return style([word.strip(".,#:?'’()") or "x" for word in words])


def with_unit(label: str, kind: Kind, rng: Random) -> str:
    """Sometimes add to the label of a number the unit or currency of the document, as in ``weight kg``."""
    unit = unit_of(kind, rng).lower()
    if not unit or rng.random() > _NAMED_UNITS or not set(label.split()).isdisjoint(unit.split()):
        return label
    return f"{label}{rng.choice([' ', ' ', ' ', ' in '])}{unit}"


_NAMED_UNITS = 0.3
"""Share of the fields with a number that has a unit which name it."""


def unit_of(kind: Kind, rng: Random) -> str:
    """Return the unit or currency of a number as names of fields have it; ``""`` if it has none."""
    if isinstance(kind, quantities.Money):
        return quantities.usual_currency(rng)
    if isinstance(kind, spoken.Duration):
        return rng.choice([f"{kind.unit}s", f"{kind.unit}s", _SHORT_UNITS.get(kind.unit, f"{kind.unit}s")])
    if isinstance(kind, quantities.Integer | quantities.Decimal):
        return rng.choice(_UNITS.get(kind.unit, (kind.unit if kind.unit.isalnum() else "",)))
    return ""


_SHORT_UNITS = {"minute": "min", "hour": "h", "month": "mo", "year": "yrs"}
_UNITS = {
    "%": ("percent", "percent", "pct"), "°": ("degrees", "deg"), "°C": ("celsius", "c", "deg c"), "°F": ("fahrenheit",),
    "kg": ("kg", "kg", "kilos"), "m²": ("m2", "sqm"), "m³": ("m3", "cubic metres"), "km²": ("km2",), "km/h": ("kmh",),
    "µg/m³": ("ug m3",), "m/s": ("m s", "mps"), "g/l": ("g l",), "mg/l": ("mg l",), "mm": ("mm", "millimetres"),
    "km": ("km", "km", "kilometres"), "m": ("m", "m", "metres"), "l": ("l", "litres"), "min": ("min", "minutes"),
    "h": ("h", "hours"), "kWh": ("kwh",), "GB": ("gb",), "MB": ("mb",), "ms": ("ms",), "s": ("s", "seconds"),
}  # fmt: skip


def paraphrased(label: str, rng: Random) -> str:
    """Sometimes replace a word of a label by one that means the same in names of fields."""
    words = label.split()
    known = [at for at, word in enumerate(words) if word in pools.label_synonyms()]
    if not known or rng.random() > 0.2:
        return label
    at = rng.choice(known)
    return " ".join([*words[:at], rng.choice(pools.label_synonyms()[words[at]]), *words[at + 1 :]])


def printed(label: str, style: Callable[[str], str], rng: Random) -> str:
    """Write a label as in a document."""
    if rng.random() < 0.06:
        words = label.split()
        label = " ".join(rng.choice([f"{short}." for short in _SHORT.get(w, ())] or [w]) for w in words)
    return style(label)


def print_style(rng: Random) -> Callable[[str], str]:
    """Choose a style of labels for one document."""
    return rng.choice(_PRINT_STYLES)


def _snake(label: str) -> str:
    return label.replace(" ", "_")


_PRINT_STYLES: tuple[Callable[[str], str], ...] = (
    str.capitalize, str.capitalize, str.capitalize, str.title, str.title, str.upper, str, _snake,
)  # fmt: skip
