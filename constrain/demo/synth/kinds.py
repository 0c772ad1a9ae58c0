"""Kinds of values: how a text prints them, and how a schema may ask for them.

A kind samples a :class:`Value` (what the document says) and, independently, an :class:`Ask` (what the schema wants and
how the gold value is read off any value of this kind). So a schema may ask for what the text leaves out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from constrain.demo.synth import pools

Schema = dict[str, Any]


@dataclass(frozen=True)
class Value:
    """One fact of a document: ``text`` as printed, ``data`` as meant (its type depends on the kind)."""

    text: str
    data: Any = None


@dataclass(frozen=True)
class Ask:
    """One way of asking for a value: a schema, and the reading of any value of the kind that the schema wants."""

    schema: Schema
    read: Callable[[Value], Any]


class Kind(ABC):
    """A kind of value."""

    @abstractmethod
    def sample(self, rng: Random, mode: str = "") -> Value:
        """A new value; ``mode`` chooses a layout where the kind has several."""

    @abstractmethod
    def ask(self, rng: Random) -> Ask:
        """A random way of asking for a value of this kind."""

    def parts(self, rng: Random) -> list[tuple[str, Ask]]:
        """Facts that follow from a value, each with the label it may be asked under."""
        return []


def verbatim(value: Value) -> str:
    return value.text


def plain(number: float) -> int | float:
    """The JSON number: whole numbers have no fraction."""
    return int(number) if number == int(number) else number


@dataclass(frozen=True)
class Text(Kind):
    """A value that is copied as it stands: names, titles, codes, addresses. ``name`` tells such kinds apart."""

    make: Callable[[Random], str]
    formats: tuple[str, ...] = ()
    name: str = ""

    def sample(self, rng: Random, mode: str = "") -> Value:
        return Value(self.make(rng))

    def ask(self, rng: Random) -> Ask:
        schema: Schema = {"type": "string"}
        if self.formats and rng.random() < 0.5:
            schema["format"] = rng.choice(self.formats)
        elif rng.random() < 0.05:
            schema["minLength"] = 1
        return Ask(schema, verbatim)


@dataclass(frozen=True)
class Person(Kind):
    def sample(self, rng: Random, mode: str = "") -> Value:
        first, last = pools.first_name(rng), pools.last_name(rng)
        if rng.random() < 0.05:
            first += f" {rng.choice('ABCDEFGHJKLMNPRSTW')}."
        return Value(f"{first} {last}", (first, last))

    def ask(self, rng: Random) -> Ask:
        if rng.random() < 0.9:
            return Ask({"type": "string"}, verbatim)
        first, last = rng.choice([("first_name", "last_name"), ("first", "last"), ("given_name", "family_name")])
        schema = obj({first: {"type": "string"}, last: {"type": "string"}})
        return Ask(schema, lambda v: {first: v.data[0], last: v.data[1]})

    def parts(self, rng: Random) -> list[tuple[str, Ask]]:
        string: Schema = {"type": "string"}
        return [("first name", Ask(string, lambda v: v.data[0])), ("last name", Ask(string, lambda v: v.data[1]))]


@dataclass(frozen=True)
class Address(Kind):
    """Street, post code and city in one line."""

    def sample(self, rng: Random, mode: str = "") -> Value:
        street, city = pools.street(rng), pools.city(rng)
        code = pools.code(rng.choice(["#####", "####", "@# #@@", "@@## #@@", "### ##"]), rng)
        text = rng.choice([f"{street}, {code} {city}", f"{street}, {city} {code}", f"{street}, {code}, {city}"])
        return Value(text, (street, code, city))

    def ask(self, rng: Random) -> Ask:
        if rng.random() < 0.6:
            return Ask({"type": "string"}, verbatim)
        names = ("street", rng.choice(["postcode", "zip", "postal_code", "zip_code"]), rng.choice(["city", "town"]))
        order = rng.choice([(0, 1, 2), (0, 2, 1), (2, 1, 0)])
        schema = obj({names[i]: {"type": "string"} for i in order})
        return Ask(schema, lambda v: {names[i]: v.data[i] for i in order})

    def parts(self, rng: Random) -> list[tuple[str, Ask]]:
        string: Schema = {"type": "string"}
        return [("city", Ask(string, lambda v: v.data[2])), ("postal code", Ask(string, lambda v: v.data[1]))]


_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹"}
_CURRENCIES = ("USD", "EUR", "GBP", "CHF", "SEK", "JPY", "CAD", "AUD", "INR", "PLN", "BRL", "NOK")


@dataclass(frozen=True)
class Money(Kind):
    """An amount with its currency; ``data`` is ``(number, code)``."""

    low: float = 1
    high: float = 5000

    def sample(self, rng: Random, mode: str = "") -> Value:
        currency = rng.choice(_CURRENCIES[:3]) if rng.random() < 0.7 else rng.choice(_CURRENCIES)
        amount = log_uniform(rng, self.low, self.high)
        whole = rng.random() < 0.35 or amount > 20000
        amount = float(round(amount)) if whole else round(amount, 2)
        digits = f"{amount:,.0f}" if whole and rng.random() < 0.8 else f"{amount:,.2f}"
        if rng.random() < 0.35:
            digits = digits.replace(",", rng.choice(["", "", " ", "'"]))
        if currency == "EUR" and not whole and rng.random() < 0.2:
            digits = f"{amount:,.2f}".translate(str.maketrans(",.", ".,"))
        if currency in _SYMBOLS and rng.random() < 0.65:
            symbol = _SYMBOLS[currency]
            after = symbol == "€" and rng.random() < 0.5
            return Value(f"{digits} {symbol}" if after else f"{symbol}{digits}", (amount, currency))
        return Value(f"{digits} {currency}" if rng.random() < 0.65 else f"{currency} {digits}", (amount, currency))

    def ask(self, rng: Random) -> Ask:
        form = rng.random()
        if form < 0.72:
            schema: Schema = {"type": "number"}
            if rng.random() < 0.1:
                schema["minimum"] = 0
            return Ask(schema, lambda v: plain(v.data[0]))
        if form < 0.84:
            return Ask({"type": "string"}, verbatim)
        amount, code = rng.choice([("amount", "currency"), ("value", "currency"), ("amount", "currency_code")])
        coded: Schema = {"type": "string"} if rng.random() < 0.6 else {"enum": list(_CURRENCIES)}
        schema = obj({amount: {"type": "number"}, code: coded})
        return Ask(schema, lambda v: {amount: plain(v.data[0]), code: v.data[1]})

    def parts(self, rng: Random) -> list[tuple[str, Ask]]:
        coded: Schema = {"type": "string"} if rng.random() < 0.6 else {"enum": list(_CURRENCIES)}
        return [(rng.choice(["currency", "currency code"]), Ask(coded, lambda v: v.data[1]))]


_SMALL = "zero one two three four five six seven eight nine ten eleven twelve".split()


@dataclass(frozen=True)
class Integer(Kind):
    """A whole number, with a unit perhaps; ``data`` is the number. Only amounts are ``grouped`` (1,000), not years."""

    low: int
    high: int
    unit: str = ""
    grouped: bool = True

    def sample(self, rng: Random, mode: str = "") -> Value:
        number = rng.randint(self.low, self.high) if self.high < 400 else round(log_uniform(rng, self.low, self.high))
        digits = f"{number:,}" if self.grouped and rng.random() < 0.45 else str(number)
        if 0 <= number <= 12 and rng.random() < 0.12:
            digits = _SMALL[number]
        return Value(with_unit(digits, self.unit, rng), number)

    def ask(self, rng: Random) -> Ask:
        if self.unit and rng.random() < 0.1:
            return Ask({"type": "string"}, verbatim)
        schema: Schema = {"type": rng.choice(["integer", "integer", "integer", "number"])}
        if rng.random() < 0.1:
            schema["minimum"] = min(self.low, 0)
        if rng.random() < 0.06:
            schema["maximum"] = self.high
        return Ask(schema, lambda v: v.data)


@dataclass(frozen=True)
class Decimal(Kind):
    """A number with a fraction and a unit perhaps; ``data`` is the number."""

    low: float
    high: float
    places: int = 1
    unit: str = ""

    def sample(self, rng: Random, mode: str = "") -> Value:
        number = round(rng.uniform(self.low, self.high), self.places)
        digits = f"{number:.{self.places}f}" if rng.random() < 0.8 else str(plain(number))
        return Value(with_unit(digits, self.unit, rng), number)

    def ask(self, rng: Random) -> Ask:
        if self.unit and rng.random() < 0.12:
            return Ask({"type": "string"}, verbatim)
        return Ask({"type": "number"}, lambda v: plain(v.data))


_MOMENT_FORMATS = (
    "%Y-%m-%d", "%Y-%m-%d", "{d} %B %Y", "%B {d}, %Y", "{d} %b %Y", "%b {d}, %Y", "%d.%m.%Y", "{d}.{m}.%Y", "%Y/%m/%d",
    "{th} of %B %Y", "%B {th}, %Y", "%A, {d} %B %Y", "%a, %d %b %Y", "%d-%b-%Y", "{d} %B, %Y", "%d.%m.%Y", "%B %d %Y",
)  # fmt: skip
_CLOCK_FORMATS = ("%H:%M", "%H:%M", "%H:%M", "{h}:%M {p}", "{h}:%M{p}", "%H.%M", "%Hh%M")


def print_moment(moment: datetime, pattern: str) -> str:
    """``strftime``, with ``{d}`` and ``{m}`` unpadded, ``{th}`` ordinal, ``{h}`` of 12 hours and ``{p}`` am or pm."""
    day = moment.day
    ending = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    half = "am" if moment.hour < 12 else "pm"
    hour = (moment.hour - 1) % 12 + 1
    return moment.strftime(pattern).format(d=day, m=moment.month, th=f"{day}{ending}", h=hour, p=half)


def random_moment(rng: Random) -> datetime:
    return datetime(1992, 1, 1) + timedelta(minutes=rng.randrange(40 * 365 * 24 * 12) * 5)


@dataclass(frozen=True)
class Date(Kind):
    def sample(self, rng: Random, mode: str = "") -> Value:
        moment = random_moment(rng)
        if moment.day > 12 and rng.random() < 0.12:
            return Value(moment.strftime(rng.choice(["%m/%d/%Y", "%d/%m/%Y"])), moment)
        return Value(print_moment(moment, rng.choice(_MOMENT_FORMATS)), moment)

    def ask(self, rng: Random) -> Ask:
        form = rng.random()
        if form < 0.68:
            return Ask({"type": "string", "format": "date"}, lambda v: v.data.strftime("%Y-%m-%d"))
        if form < 0.9:
            return Ask({"type": "string"}, verbatim)
        if form < 0.95:
            pattern = rng.choice([r"^\d{4}-\d{2}-\d{2}$", r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"])
            return Ask({"type": "string", "pattern": pattern}, lambda v: v.data.strftime("%Y-%m-%d"))
        if form < 0.97:
            return Ask({"type": "string", "format": "date-time"}, lambda v: v.data.strftime("%Y-%m-%dT00:00:00Z"))
        schema = obj({"year": {"type": "integer"}, "month": {"type": "integer"}, "day": {"type": "integer"}})
        return Ask(schema, lambda v: {"year": v.data.year, "month": v.data.month, "day": v.data.day})

    def parts(self, rng: Random) -> list[tuple[str, Ask]]:
        return [("year", Ask({"type": "integer"}, lambda v: v.data.year))]


@dataclass(frozen=True)
class Time(Kind):
    def sample(self, rng: Random, mode: str = "") -> Value:
        moment = random_moment(rng)
        return Value(print_moment(moment, rng.choice(_CLOCK_FORMATS)), moment)

    def ask(self, rng: Random) -> Ask:
        form = rng.random()
        if form < 0.6:
            return Ask({"type": "string"}, verbatim)
        if form < 0.8:
            pattern = rng.choice([r"^\d{2}:\d{2}$", r"^[0-2]\d:[0-5]\d$"])
            return Ask({"type": "string", "pattern": pattern}, lambda v: v.data.strftime("%H:%M"))
        return Ask({"type": "string", "format": "time"}, lambda v: v.data.strftime("%H:%M:00Z"))


_STAMPS = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y/%m/%d %H:%M:%S", "%d/%b/%Y:%H:%M:%S")


@dataclass(frozen=True)
class Stamp(Kind):
    """A date with a time of day, in UTC."""

    def sample(self, rng: Random, mode: str = "") -> Value:
        moment = random_moment(rng)
        if rng.random() < 0.6:
            pattern = rng.choice(_STAMPS)
            moment += timedelta(seconds=rng.randrange(60) if "%S" in pattern else 0)
            return Value(moment.strftime(pattern), moment)
        link = rng.choice([" at ", ", ", " ", " - "])
        return Value(print_moment(moment, rng.choice(_MOMENT_FORMATS) + link + rng.choice(_CLOCK_FORMATS)), moment)

    def ask(self, rng: Random) -> Ask:
        form = rng.random()
        if form < 0.5:
            return Ask({"type": "string", "format": "date-time"}, lambda v: v.data.strftime("%Y-%m-%dT%H:%M:%SZ"))
        if form < 0.65:
            return Ask({"type": "string", "format": "date"}, lambda v: v.data.strftime("%Y-%m-%d"))
        return Ask({"type": "string"}, verbatim)


@dataclass(frozen=True)
class Enum(Kind):
    """One of a few classes; ``options`` maps each to phrases that say it; ``data`` is the class.

    Mode ``label`` prints the class itself.
    """

    options: dict[str, tuple[str, ...]]

    def sample(self, rng: Random, mode: str = "") -> Value:
        option = rng.choice(list(self.options))
        if mode == "label":
            return Value(rng.choice(_PRINTED_CLASSES)(option), option)
        return Value(rng.choice(self.options[option]), option)

    def ask(self, rng: Random) -> Ask:
        if rng.random() < 0.08:
            return Ask({"type": "string"}, verbatim)
        style = rng.choice(_ASKED_CLASSES)
        options = list(self.options)
        if rng.random() < 0.5:
            rng.shuffle(options)
        if rng.random() < 0.12:
            options.append(rng.choice(["other", "unknown", "none of these"]))
        labels = [style(option) for option in options]
        schema: Schema = {"enum": labels} if rng.random() < 0.5 else {"type": "string", "enum": labels}
        return Ask(schema, lambda v: style(v.data))


_PRINTED_CLASSES: tuple[Callable[[str], str], ...] = (str, str, str.upper, str.capitalize)
_ASKED_CLASSES: tuple[Callable[[str], str], ...] = (
    *(str, str, str, str.upper, str.capitalize),
    lambda label: label.replace(" ", "_"),
)
_TRUTHS = (("yes", "no"), ("Yes", "No"), ("true", "false"), ("True", "False"), ("on", "off"), ("y", "n"), ("✓", "✗"))


@dataclass(frozen=True)
class Boolean(Kind):
    """A fact that holds or not; ``data`` is the truth value. Mode ``label`` prints yes or no in some form."""

    yes: tuple[str, ...]
    no: tuple[str, ...]

    def sample(self, rng: Random, mode: str = "") -> Value:
        truth = rng.random() < 0.5
        if mode == "label":
            return Value(rng.choice(_TRUTHS)[0 if truth else 1], truth)
        return Value(rng.choice(self.yes if truth else self.no), truth)

    def ask(self, rng: Random) -> Ask:
        if rng.random() < 0.06:
            words = rng.choice([("yes", "no"), ("Y", "N"), ("true", "false")])
            return Ask({"enum": list(words)}, lambda v: words[0] if v.data else words[1])
        return Ask({"type": "boolean"}, lambda v: v.data)


@dataclass(frozen=True)
class Listing(Kind):
    """Several values of one kind; ``data`` is the list of values. Mode ``lines`` prints one a line."""

    item: Kind
    low: int
    high: int

    def sample(self, rng: Random, mode: str = "") -> Value:
        items = distinct([self.item.sample(rng) for _ in range(rng.randint(self.low, self.high))])
        texts = [item.text for item in items]
        if mode == "lines":
            bullet = rng.choice(["- ", "* ", "• ", "", "  - ", "+ "])
            return Value("\n".join(bullet + text for text in texts), items)
        if mode == "and" or (not mode and rng.random() < 0.3):
            return Value(join_and(texts), items)
        return Value(rng.choice([", ", ", ", ", ", "; ", " / ", " | "]).join(texts), items)

    def ask(self, rng: Random) -> Ask:
        item = self.item.ask(rng)
        schema: Schema = {"type": "array", "items": item.schema}
        if rng.random() < 0.08:
            schema["minItems"] = 1
        return Ask(schema, lambda v: [item.read(each) for each in v.data])


def obj(properties: dict[str, Schema]) -> Schema:
    """An object schema that requires all of ``properties``."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def distinct(values: list[Value]) -> list[Value]:
    return list({value.text: value for value in values}.values())


def join_and(texts: list[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]


def with_unit(digits: str, unit: str, rng: Random) -> str:
    if not unit:
        return digits
    glued = unit in "%°" or (len(unit) < 3 and rng.random() < 0.4)
    return f"{digits}{unit}" if glued else f"{digits} {unit}"


def log_uniform(rng: Random, low: float, high: float) -> float:
    """A number whose logarithm is uniform: small and large amounts occur alike."""
    shift = 1 - min(low, 1)
    return float(((low + shift) * ((high + shift) / (low + shift)) ** rng.random()) - shift)
