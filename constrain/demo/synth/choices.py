"""Kinds of values: several of a few classes, and days of the week."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from constrain.demo.synth.kinds import Ask, Enum, Kind, Schema, Value, join_and


@dataclass(frozen=True)
class Choices(Kind):
    """Some of the classes of ``among``; ``data`` is the list of them, in the order of the text."""

    among: Enum
    low: int
    high: int

    def sample(self, rng: Random, mode: str = "") -> Value:
        count = rng.randint(max(1, self.low), min(self.high, len(self.among.options)))
        chosen = [self.among.of_class(option, rng, mode) for option in rng.sample(list(self.among.options), count)]
        texts = [each.text for each in chosen]
        marks = ["; ", " / "] if any("," in text or " and " in text for text in texts) else [", ", ", ", "; ", " / "]
        joined = join_and(texts) if marks[0] == ", " and rng.random() < 0.5 else rng.choice(marks).join(texts)
        return Value(joined, [each.data for each in chosen])

    def ask(self, rng: Random) -> Ask:
        labels, style = self.among.labels(rng)
        return _ask_list(labels, lambda v: [style(each) for each in v.data], rng)


@dataclass(frozen=True)
class Weekdays(Kind):
    """Days of the week; ``data`` is the list of their numbers, from 0 for Monday, in the order of the week."""

    def sample(self, rng: Random, mode: str = "") -> Value:
        if rng.random() < 0.5:
            first = rng.randint(0, 4)
            days = list(range(first, rng.randint(first + 2, 6) + 1))
        else:
            days = sorted(rng.sample(range(7), rng.choice([1, 2, 2, 3, 3, 4, 5, 6])))
        return Value(_print_days(days, rng), days)

    def ask(self, rng: Random) -> Ask:
        length, case = rng.choice([None, 3, 3, 2]), rng.choice(_CASES)
        names = [case(day[:length]) for day in _DAYS]
        return _ask_list(names, lambda v: [names[day] for day in v.data], rng)


def _ask_list(labels: list[str], read: Callable[[Value], list[str]], rng: Random) -> Ask:
    items: Schema = {"enum": labels} if rng.random() < 0.5 else {"type": "string", "enum": labels}
    schema: Schema = {"type": "array", "items": items}
    if rng.random() < 0.15:
        schema["uniqueItems"] = True
    return Ask(schema, read)


_CASES: tuple[Callable[[str], str], ...] = (str, str.lower, str.upper)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _print_days(days: list[int], rng: Random) -> str:
    """Write days as people do: as a list, as a range, or as those of a week without some."""
    length, plural = rng.choice([(None, ""), (None, ""), (None, "s"), (3, ""), (2, "")])
    names = [day[:length] for day in _DAYS]
    forms = [
        join_and([names[day] + plural for day in days]),
        rng.choice([", ", "/", " + "]).join(names[day] for day in days),
    ]
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:
        ends = names[days[0]], names[days[-1]]
        forms += [
            f"{ends[0]} to {ends[1]}",
            f"{ends[0]}-{ends[1]}",
            f"{ends[0]}–{ends[1]}",
            f"{ends[0]} through {ends[1]}",
        ]
    if 4 < len(days) < 7:
        others = join_and([f"{name}{plural}" for day, name in enumerate(names) if day not in days])
        forms += [f"every day except {others}", f"daily but {others}", f"all week but not {others}"]
    named = {
        (0, 1, 2, 3, 4): ["weekdays", "working days"],
        (5, 6): ["weekends", "the weekend"],
        tuple(range(7)): ["every day", "daily"],
    }
    forms += named.get(tuple(days), [])
    return rng.choice(forms)
