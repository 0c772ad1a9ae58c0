"""Kinds of values: amounts of money, counts, and measures with units."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from constrain.demo.synth.counting import unit_of
from constrain.demo.synth.habits import habit
from constrain.demo.synth.kinds import Ask, Kind, Schema, Value, obj, verbatim

_SYMBOLS = {
    "USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹", "CAD": "C$", "AUD": "A$", "BRL": "R$", "PLN": "zł",
}  # fmt: skip
_CURRENCIES = ("USD", "EUR", "GBP", "CHF", "SEK", "JPY", "CAD", "AUD", "INR", "PLN", "BRL", "NOK")


@dataclass(frozen=True)
class Money(Kind):
    """An amount with its currency; ``data`` is ``(number, code)``.

    Attributes:
        items: key of the list of the record whose sum it is, or ``""``.
        column: key of the column that is summed.
    """

    low: float = 1
    high: float = 5000
    items: str = ""
    column: str = ""

    def sample(self, rng: Random, mode: str = "") -> Value:
        currency = usual_currency(rng)
        amount = log_uniform(rng, self.low, self.high)
        whole = rng.random() < 0.35 or amount > 20000
        amount = float(round(amount)) if whole else round(amount, 2)
        if amount >= 10000 and rng.random() < 0.08:
            return _round_money(amount, currency, rng)
        return _print_money(amount, currency, whole, rng)

    def total(self, rows: Sequence[Mapping[str, Value]], rng: Random) -> Value | None:
        """Sum the amounts of a list; nothing if they have several currencies, or some are not stated."""
        amounts = [row[self.column].data for row in rows if self.column in row]
        currencies = {currency for _, currency in amounts}
        if len(amounts) < len(rows) or len(currencies) != 1:
            return None
        amount = round(sum(number for number, _ in amounts), 2)
        return _print_money(amount, currencies.pop(), amount == int(amount), rng)

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


def _print_money(amount: float, currency: str, whole: bool, rng: Random) -> Value:
    digits = f"{amount:,.0f}" if whole and rng.random() < 0.8 else f"{amount:,.2f}"
    if rng.random() < 0.35:
        digits = digits.replace(",", rng.choice(["", "", " ", "'"]))
    if not whole and decimal_comma(rng):
        digits = f"{amount:,.2f}".translate(str.maketrans(",.", f"{rng.choice('. ')},"))
    if currency in _SYMBOLS and rng.random() < 0.65:
        symbol = _SYMBOLS[currency]
        after = symbol == "zł" or (symbol == "€" and rng.random() < 0.5)
        return Value(f"{digits} {symbol}" if after else f"{symbol}{digits}", (amount, currency))
    return Value(f"{digits} {currency}" if rng.random() < 0.65 else f"{currency} {digits}", (amount, currency))


def usual_currency(rng: Random) -> str:
    """Return the code of the currency that the author mostly uses."""
    return habit("currency", rng, _any_currency)


def decimal_comma(rng: Random) -> bool:
    """Whether the author writes 1,5 for one and a half."""
    return habit("decimal comma", rng, lambda rng: rng.random() < 0.12)


def _any_currency(rng: Random) -> str:
    return rng.choice(_CURRENCIES[:3]) if rng.random() < 0.7 else rng.choice(_CURRENCIES)


def _round_money(amount: float, currency: str, rng: Random) -> Value:
    """Write an amount in thousands or millions, such as ``$45k`` or ``EUR 1.2 million``."""
    scale, units = (1e6, (" million", "m", "M")) if amount >= 1e6 else (1e3, ("k", "K", " thousand"))
    number = round(amount / scale, rng.choice([0, 1]))
    digits = f"{plain(number)}{rng.choice(units)}"
    symbol = _SYMBOLS.get(currency)
    text = f"{symbol}{digits}" if symbol and rng.random() < 0.6 else f"{currency} {digits}"
    return Value(text, (float(round(number * scale)), currency))


_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(number: int) -> str:
    """Write a number below a million in words."""
    if number < 20:
        return _SMALL[number]
    if number < 100:
        ten = _TENS[number // 10 - 2]
        return f"{ten}-{_SMALL[number % 10]}" if number % 10 else ten
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    head, rest = divmod(number, size)
    link = " and " if rest < 100 else " "
    return f"{in_words(head)} {name}" + (f"{link}{in_words(rest)}" if rest else "")


@dataclass(frozen=True)
class Integer(Kind):
    """An integer, optionally with a unit; ``data`` is the number. Amounts are ``grouped`` (1,000), years are not."""

    low: int
    high: int
    unit: str = ""
    grouped: bool = True

    def sample(self, rng: Random, mode: str = "") -> Value:
        number = rng.randint(self.low, self.high) if self.high < 400 else round(log_uniform(rng, self.low, self.high))
        digits = f"{number:,}" if self.grouped and rng.random() < 0.5 else str(number)
        if rng.random() < 0.15:
            digits = digits.replace(",", rng.choice(" '"))
        if 0 <= number < 100 and self.grouped and rng.random() < (0.16 if number < 20 else 0.05):
            digits = in_words(number)
            digits = digits.capitalize() if mode == "label" and rng.random() < 0.3 else digits
        return Value(with_unit(digits, unit_of(number, digits, self.unit), rng), number)

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
    """A decimal number, optionally with a unit; ``data`` is the number."""

    low: float
    high: float
    places: int = 1
    unit: str = ""

    def sample(self, rng: Random, mode: str = "") -> Value:
        number = round(rng.uniform(self.low, self.high), self.places)
        digits = f"{number:.{self.places}f}" if rng.random() < 0.8 else str(plain(number))
        digits = digits.replace(".", ",") if decimal_comma(rng) else digits
        return Value(with_unit(digits, unit_of(number, digits, self.unit), rng), number)

    def ask(self, rng: Random) -> Ask:
        if self.unit and rng.random() < 0.12:
            return Ask({"type": "string"}, verbatim)
        return Ask({"type": "number"}, lambda v: plain(v.data))


def plain(number: float) -> int | float:
    """Convert to a JSON number; integers have no fraction."""
    return int(number) if number == int(number) else number


def with_unit(digits: str, unit: str, rng: Random) -> str:
    if not unit:
        return digits
    glued = digits[-1].isdigit() and (unit in "%°" or (len(unit) < 3 and rng.random() < 0.4))
    return f"{digits}{unit}" if glued else f"{digits} {unit}"


def without_unit(kind: Kind, value: Value) -> tuple[str, str] | None:
    """Split the text of a number into its digits and its unit or currency; ``None`` if it has none of these."""
    if isinstance(kind, Money):
        match = _DIGITS.search(value.text)
        known = match and value.text.replace(match[0], "").strip() in (value.data[1], _SYMBOLS.get(value.data[1]))
        return (match[0], value.data[1]) if match and known else None
    unit = kind.unit if isinstance(kind, Integer | Decimal) else ""
    printed = unit_of(1, "1", unit) if value.data == 1 and not value.text.endswith(unit) else unit
    digits = value.text.removesuffix(printed).strip()
    return (digits, unit) if unit and digits != value.text and digits[-1].isdigit() else None


_DIGITS = re.compile(r"\d([\d.,' ]*\d)?")


def log_uniform(rng: Random, low: float, high: float) -> float:
    """Sample a number with a uniform logarithm, so that small and large amounts are equally frequent."""
    shift = 1 - min(low, 1)
    return float(((low + shift) * ((high + shift) / (low + shift)) ** rng.random()) - shift)
