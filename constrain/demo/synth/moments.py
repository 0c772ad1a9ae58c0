"""Kinds of values: dates and times of day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from constrain.demo.synth.habits import habit
from constrain.demo.synth.kinds import Ask, Kind, Value, obj, verbatim

_MOMENT_FORMATS = (
    "%Y-%m-%d", "%Y-%m-%d", "{d} %B %Y", "%B {d}, %Y", "{d} %b %Y", "%b {d}, %Y", "%d.%m.%Y", "{d}.{m}.%Y", "%Y/%m/%d",
    "{th} of %B %Y", "%B {th}, %Y", "%A, {d} %B %Y", "%a, %d %b %Y", "%d-%b-%Y", "{d} %B, %Y", "%d.%m.%Y", "%B %d %Y",
)  # fmt: skip
_CLOCK_FORMATS = ("%H:%M", "%H:%M", "%H:%M", "{h}:%M {p}", "{h}:%M{p}", "%H.%M", "%Hh%M")


def print_moment(moment: datetime, pattern: str) -> str:
    """Extend ``strftime`` by ``{d}`` and ``{m}`` unpadded, ``{th}`` ordinal, ``{h}`` of 12 hours, ``{p}`` am or pm."""
    day = moment.day
    ending = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    half = "am" if moment.hour < 12 else "pm"
    hour = (moment.hour - 1) % 12 + 1
    return moment.strftime(pattern).format(d=day, m=moment.month, th=f"{day}{ending}", h=hour, p=half)


def random_moment(rng: Random) -> datetime:
    """Sample a moment, mostly within some months of the others of a document."""
    around = habit("time", rng, lambda rng: datetime(1992, 1, 1) + timedelta(days=rng.randrange(40 * 365)))
    months = int(rng.gammavariate(1, 4)) * rng.choice([-1, 1, 1])
    return around + timedelta(days=30 * months + rng.randrange(30), minutes=rng.randrange(24 * 12) * 5)


def _format(rng: Random) -> str:
    return rng.choice(_MOMENT_FORMATS)


def _clock(rng: Random) -> str:
    return rng.choice(_CLOCK_FORMATS)


@dataclass(frozen=True)
class Date(Kind):
    def sample(self, rng: Random, mode: str = "") -> Value:
        moment = random_moment(rng)
        if moment.day > 12 and rng.random() < 0.12:
            return Value(moment.strftime(rng.choice(["%m/%d/%Y", "%d/%m/%Y"])), moment)
        return Value(print_moment(moment, habit("date format", rng, _format)), moment)

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
        return Value(print_moment(moment, habit("clock format", rng, _clock)), moment)

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
            pattern = habit("time stamp", rng, lambda rng: rng.choice(_STAMPS))
            moment += timedelta(seconds=rng.randrange(60) if "%S" in pattern else 0)
            return Value(moment.strftime(pattern), moment)
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
