"""Kinds of values: dates and times of day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from constrain.demo.synth.habits import Author, habit, is_clean
from constrain.demo.synth.kinds import Ask, Kind, Value, obj, verbatim
from constrain.demo.synth.quantities import in_words

_MOMENT_FORMATS = (
    "%Y-%m-%d", "%Y-%m-%d", "{d} %B %Y", "%B {d}, %Y", "{d} %b %Y", "%b {d}, %Y", "%d.%m.%Y", "{d}.{m}.%Y", "%Y/%m/%d",
    "{th} of %B %Y", "%B {th}, %Y", "%A, {d} %B %Y", "%a, %d %b %Y", "%d-%b-%Y", "{d} %B, %Y", "%d.%m.%Y", "%B %d %Y",
    "%d.%m.%y", "%d %b %y",
)  # fmt: skip
_FORMATS_WITHOUT_YEAR = (
    "{d} %B", "{d} %B", "%B {d}", "%B {d}", "{th} %B", "%B {th}", "the {th} of %B", "%A, {d} %B", "%A {d} %B",
    "%A, %B {d}", "%a {d} %b", "%a %b {d}", "{d} %b", "%b {d}", "{d}.{m}.", "%d.%m.", "%a %d.%m.", "%A {th} %B",
    "%A the {th} of %B",
)  # fmt: skip
_CLOCK_FORMATS = ("%H:%M", "%H:%M", "%H:%M", "{h}:%M {p}", "{h}:%M{p}", "%H.%M", "%Hh%M")


def print_moment(moment: datetime, pattern: str) -> str:
    """Extend ``strftime`` by ``{d}`` and ``{m}`` unpadded, ``{th}`` ordinal, ``{h}`` of 12 hours, ``{p}`` am or pm."""
    day = moment.day
    ending = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    half = "am" if moment.hour < 12 else "pm"
    hour = (moment.hour - 1) % 12 + 1
    return moment.strftime(pattern).format(d=day, m=moment.month, th=f"{day}{ending}", h=hour, p=half)


def random_moment(rng: Random, first: int = 1992, last: int = 2031) -> datetime:
    """Sample a moment of the years ``first`` to ``last``, mostly within some months of the others of a document."""
    days = (last - first + 1) * 365
    around = habit(f"time {first}", rng, lambda rng: datetime(first, 1, 1) + timedelta(days=rng.randrange(days)))
    months = int(rng.gammavariate(1, 4)) * rng.choice([-1, 1, 1])
    return around + timedelta(days=30 * months + rng.randrange(30), minutes=rng.randrange(24 * 12) * 5)


def _soon_after(first: datetime, rng: Random) -> datetime:
    """Sample a day whose year is clear without being stated, if ``first`` is the first date of the document."""
    return first + timedelta(days=rng.choice([rng.randint(0, 14), rng.randint(0, 60), rng.randint(-20, 90)]))


def _remember(moment: datetime, rng: Random) -> None:
    """Remember a date that is written in full, if it is the first of its author."""
    if isinstance(rng, Author):
        rng.habits.setdefault("first date", moment)


def remember_last(moment: datetime, rng: Random) -> None:
    """Let the next later date follow ``moment``."""
    if isinstance(rng, Author):
        rng.habits["last date"] = moment


def _without_year(moment: datetime, rng: Random) -> Value:
    remember_last(moment, rng)
    return Value(print_moment(moment, habit("date without year", rng, _format_without_year)), moment)


def _format(rng: Random) -> str:
    return rng.choice(_MOMENT_FORMATS)


def _format_without_year(rng: Random) -> str:
    return rng.choice(_FORMATS_WITHOUT_YEAR)


def _clock(rng: Random) -> str:
    return rng.choice(_CLOCK_FORMATS)


@dataclass(frozen=True)
class Date(Kind):
    """A date of the years ``first`` to ``last``; if ``spoken``, mostly as people say it."""

    first: int = 1992
    last: int = 2031
    spoken: bool = False

    def sample(self, rng: Random, mode: str = "") -> Value:
        if self.spoken and rng.random() < _FEAST:
            return self._feast(rng)
        if self.first != Date.first:
            return self._print(random_moment(rng, self.first, self.last), rng)
        if isinstance(rng, Author) and "first date" in rng.habits and rng.random() < 0.25:
            return _without_year(_soon_after(rng.habits["first date"], rng), rng)
        if not self.spoken and not is_clean(rng) and rng.random() < 0.1:
            return self._print(random_moment(rng, 1931, 1991), rng)
        value = self._print(random_moment(rng, self.first, self.last), rng)
        _remember(value.data, rng)
        return value

    def _feast(self, rng: Random) -> Value:
        """Write the name of a feast day, with the year."""
        name, month, day = rng.choice(_FEASTS)
        moment = random_moment(rng, self.first, self.last).replace(month=month, day=day)
        remember_last(moment, rng)
        if self.first == Date.first:
            _remember(moment, rng)
        return Value(f"{name}{rng.choice([' ', ', ', ' of '])}{moment.year}", moment)

    def at(self, moment: datetime, rng: Random) -> Value:
        """Print a date; without its year, if that is clear by the first date of the document."""
        first = rng.habits.get("first date") if isinstance(rng, Author) and self.first == Date.first else None
        if first and 0 <= (moment - first).days <= 90 and rng.random() < 0.25:
            return _without_year(moment, rng)
        if self.first == Date.first:
            _remember(moment, rng)
        return self._print(moment, rng)

    def _print(self, moment: datetime, rng: Random) -> Value:
        remember_last(moment, rng)
        if self.spoken and rng.random() < 0.7:
            return _said_day(moment, rng)
        if moment.day > 12 and rng.random() < 0.12:
            return Value(moment.strftime(rng.choice(["%m/%d/%Y", "%d/%m/%Y"])), moment)
        pattern = habit("date format", rng, _format)
        return Value(print_moment(moment, pattern if moment.year > 1930 else pattern.replace("%y", "%Y")), moment)

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
class Later(Date):
    """A date that is ``least`` to ``most`` days after the last one that was remembered."""

    least: int = 1
    most: int = 30

    def sample(self, rng: Random, mode: str = "") -> Value:
        if not isinstance(rng, Author) or "last date" not in rng.habits:
            return super().sample(rng, mode)
        return self.at(rng.habits["last date"] + self.gap(rng), rng)

    def gap(self, rng: Random) -> timedelta:
        return timedelta(days=rng.randint(self.least, self.most))


@dataclass(frozen=True)
class Month(Kind):
    """A month of the years ``first`` to ``last``; ``data`` is a moment in it."""

    first: int = 1992
    last: int = 2031

    def sample(self, rng: Random, mode: str = "") -> Value:
        return self.at(random_moment(rng, self.first, self.last), rng)

    def at(self, moment: datetime, rng: Random) -> Value:
        return Value(moment.strftime(rng.choice(_MONTH_FORMATS)), moment)

    def ask(self, rng: Random) -> Ask:
        if rng.random() < 0.4:
            return Ask({"type": "string"}, verbatim)
        return Ask({"type": "string", "pattern": r"^\d{4}-\d{2}$"}, lambda v: v.data.strftime("%Y-%m"))

    def parts(self, rng: Random) -> list[tuple[str, Ask]]:
        return [("year", Ask({"type": "integer"}, lambda v: v.data.year))]


_MONTH_FORMATS = ("%B %Y", "%B %Y", "%B %Y", "%B of %Y", "%b %Y", "%m/%Y", "%Y-%m")


@dataclass(frozen=True)
class Time(Kind):
    """A time of day; if ``spoken``, mostly as people say it."""

    spoken: bool = False

    def sample(self, rng: Random, mode: str = "") -> Value:
        moment = random_moment(rng)
        if rng.random() < _BY_DAY:
            moment = moment.replace(hour=rng.randint(7, 21))
        return self.at(moment, rng)

    def at(self, moment: datetime, rng: Random) -> Value:
        if self.spoken and rng.random() < 0.7:
            return Value(said_time(moment, rng), moment)
        return Value(print_moment(moment, habit("clock format", rng, _clock)), moment)

    def ask(self, rng: Random) -> Ask:
        form = rng.random()
        if form < (0.3 if self.spoken else 0.6):
            return Ask({"type": "string"}, verbatim)
        if form < 0.8:
            pattern = rng.choice([r"^\d{2}:\d{2}$", r"^[0-2]\d:[0-5]\d$"])
            return Ask({"type": "string", "pattern": pattern}, lambda v: v.data.strftime("%H:%M"))
        return Ask({"type": "string", "format": "time"}, lambda v: v.data.strftime("%H:%M:00Z"))


_BY_DAY = 0.7
"""Share of the times at which people are surely up; the others are at any hour."""

_STAMPS = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y/%m/%d %H:%M:%S", "%d/%b/%Y:%H:%M:%S")


@dataclass(frozen=True)
class Stamp(Kind):
    """A date with a time of day, in UTC."""

    def sample(self, rng: Random, mode: str = "") -> Value:
        return self.at(random_moment(rng), rng)

    def at(self, moment: datetime, rng: Random) -> Value:
        moment = moment.replace(second=0, microsecond=0)
        if rng.random() < 0.6:
            pattern = habit("time stamp", rng, lambda rng: rng.choice(_STAMPS))
            moment += timedelta(seconds=rng.randrange(60) if "%S" in pattern else 0)
            _remember(moment, rng)
            remember_last(moment, rng)
            return Value(moment.strftime(pattern), moment)
        remember_last(moment, rng)
        link = rng.choice([" at ", ", ", " ", " - "])
        return Value(
            print_moment(moment, habit("date format", rng, _format) + link + habit("clock format", rng, _clock)), moment
        )

    def ask(self, rng: Random) -> Ask:
        form = rng.random()
        if form < 0.5:
            return Ask({"type": "string", "format": "date-time"}, lambda v: v.data.strftime("%Y-%m-%dT%H:%M:%SZ"))
        if form < 0.65:
            return Ask({"type": "string", "format": "date"}, lambda v: v.data.strftime("%Y-%m-%d"))
        return Ask({"type": "string"}, verbatim)


def said_time(moment: datetime, rng: Random) -> str:
    """Say a time of day whose minutes are a multiple of five, such as ``half past seven in the evening``."""
    hour, minute = moment.hour, moment.minute
    if minute == 0 and hour in (0, 12):
        return "noon" if hour else "midnight"
    part = rng.choice(_PARTS[hour // 3])
    if minute == 0:
        return f"{_hour(hour)}{rng.choice(['', ' o’clock'])} {part}"
    past = minute <= 30
    distance = _DISTANCES.get(minute if past else 60 - minute) or in_words(minute if past else 60 - minute)
    return f"{distance} past {_hour(hour)} {part}" if past else f"{distance} to {_hour(hour + 1)} {part}"


_DISTANCES = {15: "a quarter", 30: "half"}
_MORNING = ("in the morning",)
_PARTS = (
    ("at night",), ("in the morning", "in the small hours"), _MORNING, _MORNING, ("in the afternoon",),
    ("in the afternoon",), ("in the evening",), ("at night", "in the evening"),
)  # fmt: skip


def _hour(hour: int) -> str:
    return in_words((hour - 1) % 12 + 1)


def _said_day(moment: datetime, rng: Random) -> Value:
    """Say a date, such as ``the fourth of May 1871``."""
    pattern = rng.choice(_SAID_DAYS).replace("{ordinal}", ordinal(moment.day))
    return Value(print_moment(moment, pattern), moment)


_SAID_DAYS = (
    "the {th} of %B %Y", "the {th} of %B, %Y", "%B the {th}, %Y", "the {ordinal} of %B %Y", "%B the {ordinal}, %Y",
    "the {ordinal} of %B in the year %Y", "the {th} day of %B, %Y", "%A the {th} of %B %Y", "{d} %B of the year %Y",
)  # fmt: skip
_FEAST = 0.08
"""Share of the dates that are feast days, where people speak."""

_FEASTS = (
    ("Christmas Eve", 12, 24), ("Christmas Day", 12, 25), ("Boxing Day", 12, 26), ("New Year’s Eve", 12, 31),
    ("New Year’s Day", 1, 1), ("Epiphany", 1, 6), ("Candlemas", 2, 2), ("Valentine’s Day", 2, 14),
    ("St Patrick’s Day", 3, 17), ("Lady Day", 3, 25), ("April Fools’ Day", 4, 1), ("May Day", 5, 1),
    ("Midsummer Day", 6, 24), ("Michaelmas", 9, 29), ("Halloween", 10, 31), ("All Saints’ Day", 11, 1),
    ("Martinmas", 11, 11), ("St Nicholas’ Day", 12, 6),
)  # fmt: skip


def ordinal(day: int) -> str:
    """Write the ordinal of a day of the month in words, such as ``twenty-first``."""
    head, _, last = in_words(day).rpartition("-")
    last = _ORDINALS.get(last) or (f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th")
    return f"{head}-{last}" if head else last


_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
