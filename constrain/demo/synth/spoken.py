"""Kinds of values: counts, durations and shares as people say them, such as ``half a dozen`` or ``a fortnight``."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from constrain.demo.synth.counting import unit_of
from constrain.demo.synth.habits import pick
from constrain.demo.synth.kinds import Ask, Kind, Value
from constrain.demo.synth.quantities import Integer, in_words, with_unit

_COUNTS = {
    6: ("half a dozen",), 12: ("a dozen", "one dozen"), 24: ("two dozen",), 36: ("three dozen",), 40: ("two score",),
    48: ("four dozen",), 60: ("five dozen", "three score"), 72: ("six dozen",), 100: ("a hundred",),
    120: ("ten dozen", "six score"), 150: ("a hundred and fifty",), 500: ("half a thousand",), 1000: ("a thousand",),
    1500: ("one and a half thousand", "fifteen hundred"), 2500: ("two and a half thousand",),
}  # fmt: skip


@dataclass(frozen=True)
class Count(Integer):
    """A number of things, whose name follows; mostly in words."""

    def sample(self, rng: Random, mode: str = "") -> Value:
        known = [number for number in _COUNTS if self.low <= number <= self.high]
        if mode == "label" or rng.random() < 0.35:
            return super().sample(rng, mode)
        if known and rng.random() < 0.45:
            number = rng.choice(known)
            return Value(with_unit(rng.choice(_COUNTS[number]), self.unit, rng), number)
        number = super().sample(rng).data
        digits = in_words(number)
        return Value(with_unit(digits, unit_of(number, digits, self.unit), rng), number)


UNITS = {f"{unit}s": unit for unit in ("minute", "hour", "day", "week", "month", "year")}
"""Units of durations, by their plural."""

_DURATIONS: dict[str, dict[int, tuple[str, ...]]] = {
    "minute": {
        1: ("a minute",), 15: ("a quarter of an hour",), 30: ("half an hour",), 45: ("three quarters of an hour",),
        60: ("an hour", "a full hour"), 75: ("an hour and a quarter",), 90: ("an hour and a half",),
        120: ("two hours",), 150: ("two and a half hours",), 180: ("three hours",), 240: ("four hours",),
    },
    "hour": {1: ("an hour",), 12: ("half a day",), 24: ("a whole day", "a day and a night"), 72: ("three days",)},
    "day": {1: ("a day", "a single day"), 7: ("a week",), 14: ("a fortnight", "two weeks"), 21: ("three weeks",)},
    "week": {1: ("a week",), 2: ("a fortnight",), 26: ("half a year",), 52: ("a year",), 104: ("two years",)},
    "month": {
        1: ("a month",), 3: ("a quarter of a year",), 6: ("half a year",), 12: ("a year", "a whole year"),
        18: ("a year and a half",), 24: ("two years",), 30: ("two and a half years",), 36: ("three years",),
        48: ("four years",), 60: ("five years",),
    },
    "year": {
        1: ("a year",), 10: ("a decade", "ten years"), 20: ("two decades", "a score of years"), 30: ("three decades",),
        25: ("a quarter of a century",), 50: ("half a century",), 75: ("three quarters of a century",),
        100: ("a century", "a hundred years"), 200: ("two centuries",), 300: ("three centuries",),
    },
}  # fmt: skip
_PARTS = {"minute": ("hour", 60), "month": ("year", 12)}


@dataclass(frozen=True)
class Duration(Kind):
    """A duration; ``data`` is the number of its ``unit``, which the labels of a slot should name."""

    unit: str
    low: int
    high: int

    def sample(self, rng: Random, mode: str = "") -> Value:
        known = {n: phrases for n, phrases in _DURATIONS[self.unit].items() if self.low <= n <= self.high}
        if known and rng.random() < 0.4:
            number = rng.choice(list(known))
            return Value(rng.choice(known[number]), number)
        number = rng.randint(self.low, self.high)
        larger, size = _PARTS.get(self.unit, ("", 0))
        if size and number > size and number % size and rng.random() < 0.6:
            return Value(
                " and ".join([_units(number // size, larger, rng), _units(number % size, self.unit, rng)]), number
            )
        return Value(_units(number, self.unit, rng), number)

    def ask(self, rng: Random) -> Ask:
        return Ask({"type": rng.choice(["integer", "integer", "number"])}, lambda v: v.data)


def _units(number: int, unit: str, rng: Random) -> str:
    digits = str(number) if rng.random() < 0.5 else in_words(number)
    return f"{digits} {unit}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Meant(Kind):
    """A number that phrases imply, such as ``twice a day`` or ``an apple and two pears``; ``data`` is the number."""

    phrases: tuple[tuple[int, tuple[str, ...]], ...]
    tied: str = ""

    def sample(self, rng: Random, mode: str = "") -> Value:
        number, phrases = pick(self.phrases, self.tied, rng)
        return Value(rng.choice(phrases), number)

    def ask(self, rng: Random) -> Ask:
        return Ask({"type": rng.choice(["integer", "integer", "number"])}, lambda v: v.data)


_SHARES = {
    5: ("one in twenty", "a twentieth"), 10: ("one in ten", "a tenth"), 20: ("one in five", "a fifth"),
    25: ("a quarter", "one in four"), 30: ("three out of ten",), 40: ("two fifths", "four out of ten"),
    50: ("half", "one half", "exactly half"), 60: ("three fifths", "three out of five"), 70: ("seven out of ten",),
    75: ("three quarters", "three out of four"), 80: ("four fifths", "four out of five"), 90: ("nine out of ten",),
}  # fmt: skip
_PERCENT = ("%", " %", " per cent", " percent")


@dataclass(frozen=True)
class Share(Kind):
    """A part of a whole, of which the text goes on to speak; ``data`` is the percentage."""

    low: int
    high: int

    def sample(self, rng: Random, mode: str = "") -> Value:
        known = [number for number in _SHARES if self.low <= number <= self.high]
        if known and rng.random() < 0.55:
            number = rng.choice(known)
            return Value(rng.choice(_SHARES[number]), number)
        number = rng.randint(self.low, self.high)
        if rng.random() < 0.3:
            return Value(f"{in_words(number)} per cent", number)
        return Value(f"{number}{rng.choice(_PERCENT)}", number)

    def ask(self, rng: Random) -> Ask:
        return Ask({"type": rng.choice(["integer", "number", "number"])}, lambda v: v.data)
