"""Values of one record that fit each other: what ends comes after what begins, and a total is the sum of its parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from constrain.demo.synth import moments
from constrain.demo.synth.kinds import Kind, Value
from constrain.demo.synth.quantities import Integer, Money
from constrain.demo.synth.slots import Slot

_BILL = moments.Later(least=5, most=60)
"""When a bill or letter of a certain day is due."""


def linked(slots: Iterable[Slot], wordings: Sequence[str]) -> tuple[Slot, ...]:
    """Return the slots of one record, with the keys of those that they come after.

    Later dates come after the date declared before them, a due date after that of the paper, and an end after its
    beginning. The labels of both show that, or a wording such as ``{a} to {b}``.
    """
    slots = tuple(slots)
    done: list[Slot] = []
    for slot in slots:
        done.append(_linked(slot, (*done, *slots[len(done) :]), wordings))
    return tuple(done)


def _linked(slot: Slot, slots: tuple[Slot, ...], wordings: Sequence[str]) -> Slot:
    at = slots.index(slot)
    if isinstance(slot.kind, moments.Later):
        return replace(slot, after=_last_date(slots[:at]))
    if not isinstance(slot.kind, _MOMENTS) and not _is_year(slot.kind):
        return slot
    others = [other for other in slots[:at][::-1] + slots[at + 1 :] if type(other.kind) is type(slot.kind)]
    others = [other for other in others if slot.key not in _chain(other, slots)]
    if isinstance(slot.kind, _MOMENTS) and (before := _line_before(slot, others, wordings)):
        return replace(slot, after=before)
    free = _FREE.search(" ".join(slot.labels))
    for other in () if free else others:
        if _is_beginning(other, slot, other in slots[:at], wordings):
            return replace(slot, after=other.key)
    return slot if free or not isinstance(slot.kind, moments.Date) else _after_paper(slot, others)


def _chain(slot: Slot, slots: Sequence[Slot]) -> list[str]:
    """Return the keys of the slots that a slot comes after, one after the other."""
    found: list[str] = []
    while slot.after:
        found.append(slot.after)
        slot = next(each for each in slots if each.key == slot.after)
    return found


def _line_before(slot: Slot, others: Sequence[Slot], wordings: Sequence[str]) -> str:
    """Return the key of the slot at the start of the line before that of ``slot``, as in a log; ``""`` if none is."""
    known = {slot.key, *(other.key for other in others)}
    for wording in wordings:
        starts = [key for key in _LINE.findall(wording) if key in known]
        if slot.key in starts[1:] and slot.key != starts[0]:
            return str(starts[starts.index(slot.key) - 1])
    return ""


_LINE = re.compile(r"^\{(\w+)(?::\w+)?\}", re.MULTILINE)


def _after_paper(slot: Slot, others: Sequence[Slot]) -> Slot:
    """Let a date come after that of the paper, of what leads to it, or of a birth."""
    paper = next((other for other in others if not _PAPER.isdisjoint(other.labels)), None)
    if paper and slot.kind == moments.Date() and not _DUE.isdisjoint(slot.labels):
        return replace(slot, kind=_BILL, after=paper.key)
    for first, last in _PAIRS:
        before = next((other for other in others if _is_called(other, first) and not _is_birth(other)), None)
        if before and _is_called(slot, last):
            return replace(slot, after=before.key)
    birth = next((other for other in others if other.kind == slot.kind and _is_birth(other)), None)
    return replace(slot, after=birth.key) if birth else slot


_MOMENTS = (moments.Date, moments.Time, moments.Stamp, moments.Month)


def _is_year(kind: Kind) -> bool:
    return isinstance(kind, Integer) and not kind.grouped


def _last_date(slots: Sequence[Slot]) -> str:
    """Return the key of the last date, if possible of one that is no birthday."""
    dates = [slot for slot in slots if isinstance(slot.kind, (moments.Date, moments.Stamp))]
    plain = [slot for slot in dates if not _is_birth(slot)]
    return (plain or dates)[-1].key if dates else ""


#: Signs of values in the place of others, and of deadlines before something begins.
_FREE = re.compile(r"\b(old|new|previous|former|original(ly)?|final slot|rsvp)\b", re.IGNORECASE)


def _is_birth(slot: Slot) -> bool:
    return not _BIRTHS.isdisjoint(slot.labels) and not any("expected" in label for label in slot.labels)


_BIRTHS = frozenset(("date of birth", "birth date", "born", "born on", "dob"))
_PAPER = frozenset((
    "invoice date", "bill date", "date of the bill", "date of the invoice", "date", "dated", "issued", "issued on",
    "issue date", "date of issue", "letter date", "date of the letter", "billed on", "invoiced on",
))  # fmt: skip
_DUE = frozenset((
    "due date", "due", "due on", "payment due", "payable by", "payable until", "pay by", "pay until", "due by",
    "payment due by", "payment deadline", "payment due on",
))  # fmt: skip
#: Labels of dates, and of dates that come after them.
_PAIRS = tuple(
    (re.compile(first), re.compile(last))
    for first, last in (
        (
            "(application |registration )?deadline|appl(y|ications) (by|until)|register by|sign up by",
            "start(s|ing|ing date| date)?|(starts|begins|to begin|to be filled) on|first( working)? day|begins?|from",
        ),
        (
            "(date|dated|issued|written|signed|issued on|letter date|issue date)|(written|held|sent|billed) on|"
            r"(inspected|checked|examined|tested|measured|seen|visited|met) on|date of( the)? \w+|"
            "(visit|meeting|review|inspection|test|check|report|offer|appointment) date",
            "next .+|follow-up|(again|repeat) on|(offer )?valid until|expir(es|y date)",
        ),
        (
            "dated|(written|sent|asked) on|(letter|offer) date|date of( the)? (letter|request|offer)",
            "(reply|answer|respond) (by|until)",
        ),
        (
            "(disbursement|payout) date|paid out on|date of( the)? loan|lent on",
            "first (instalment|repayment|payment)( due| on| date)?|repayment starts",
        ),
        ("order date|ordered on|date of( the)? order", "(delivery|dispatch|ship) date|(delivered|shipped|arrived) on"),
        ("purchase date|bought on|date of( the)? purchase", "return date|returned on|complaint date|warranty until"),
        ("happened on|(accident|incident) date|date of( the)? (loss|accident|incident)", "reported on|report date"),
    )
)


def _is_called(slot: Slot, labels: re.Pattern[str]) -> bool:
    return any(labels.fullmatch(label) for label in slot.labels)


def _is_beginning(first: Slot, last: Slot, declared: bool, wordings: Sequence[str]) -> bool:
    """Whether ``last`` is the end of what ``first`` is the beginning of; ``declared`` if it is declared after it."""
    link = re.compile(rf"\{{{re.escape(first.key)}\b[^{{}}]*\}} ?(?:to|until|till|-|–) ?\{{{re.escape(last.key)}[:}}]")
    if isinstance(first.kind, _MOMENTS) and any(link.search(wording) for wording in wordings):
        return True
    pairs = _ENDS + _STAYS if declared else _ENDS
    return any(not _matters(first, begin).isdisjoint(_matters(last, end)) for begin, end in pairs)


def _matters(slot: Slot, signs: re.Pattern[str]) -> set[str]:
    """Return the labels with one of the ``signs``, without it and without particles: what begins, or what ends."""
    return {_PARTICLES.sub(" ", signs.sub(" ", label)).strip() for label in slot.labels if signs.search(label)}


def _signs(words: str) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(words.split())})\b(?!-)")


_PARTICLES = re.compile(r"(\b(of|the|at|on|in|a|by|for|date|time|day|hour|hours|month|year)\b|\s)+")
#: Signs of beginnings and ends; those of journeys and stays are the same in another order.
_ENDS = (
    (
        _signs("from start starts started begin begins began beginning since opens opened opening open commencement"),
        _signs("until to till end ends ended finish finishes finished close closes closed closing expiry expires"),
    ),
    (_signs("planned scheduled"), _signs("actual actually real")),
)
_STAYS = (
    (
        _signs("departure departs dep leaves leave left depart out"),
        _signs("arrival arrives arr arrived return returns back lands landing landed"),
    ),
    (
        _signs("arrival arrives arrived arrive check-in move-in moved in came arriving"),
        _signs("departure departs departed left leave leaves check-out move-out moved out leaving"),
    ),
)


@dataclass
class Sampling:
    """The values of a record while they are sampled, one after the other in the order of the text."""

    slots: Sequence[Slot]
    rng: Random
    values: dict[str, Value] = field(default_factory=dict)

    def sample(self, key: str, mode: str = "") -> Value:
        """Sample the value of a slot so that it fits those that there are already, or return it if it is of these."""
        if key not in self.values:
            value = self._fitting(next(slot for slot in self.slots if slot.key == key), mode)
            self.values[key] = value.capitalised() if mode == "cap" else value
        return self.values[key]

    def _fitting(self, slot: Slot, mode: str) -> Value:
        kind = slot.kind
        if isinstance(kind, Money) and kind.items in self.values:
            return kind.total(self.values[kind.items].data, self.rng) or kind.sample(self.rng, mode)
        before, after = self._first_and_last(slot)
        if isinstance(kind, _MOMENTS) and (moment := self._moment(slot, before, after)):
            return kind.at(moment, self.rng)
        if isinstance(kind, Integer):
            kind = _narrowed(kind, before, after)
        return kind.sample(self.rng, mode)

    def _first_and_last(self, slot: Slot) -> tuple[Any, Any]:
        """Return the data of the value that is before that of a slot, and of the first one after it."""
        before = self.values[slot.after].data if slot.after in self.values else None
        after = [self.values[each.key].data for each in self._followers(slot) if _follows(each.kind)]
        return before, min(after, default=None)

    def _followers(self, slot: Slot) -> list[Slot]:
        return [each for each in self.slots if each.after == slot.key and each.key in self.values]

    def _moment(self, slot: Slot, before: datetime | None, after: datetime | None) -> datetime | None:
        """Sample a moment for a slot between others; nothing if it may be any."""
        kind, rng = slot.kind, self.rng
        if isinstance(kind, moments.Time):
            return _time_between(before, after, rng)
        if before and after and before < after:
            return before + (after - before) * rng.uniform(0.1, 0.9)
        if before and isinstance(kind, moments.Later):
            return before + kind.gap(rng)
        later = next((each for each in self._followers(slot) if isinstance(each.kind, moments.Later)), None)
        if later and isinstance(later.kind, moments.Later):
            end: datetime = self.values[later.key].data
            return end - later.kind.gap(rng)
        if (before or after) and isinstance(kind, (moments.Date, moments.Month)):
            free = moments.random_moment(rng, kind.first, kind.last)
            if not self._has_range_of_others(slot) and (not before or before < free) and (not after or free < after):
                return free
        span = _span(kind, rng)
        return before + span if before else after - span if after else None

    def _has_range_of_others(self, slot: Slot) -> bool:
        """Whether the values next to that of a slot are of the same years."""
        others = [each.kind for each in self.slots if each.key == slot.after or each.after == slot.key]
        return slot.kind in others


def _follows(kind: Kind) -> bool:
    """Whether a slot of a kind that comes after another is always later."""
    return not isinstance(kind, moments.Later) or kind.least > 0


def _narrowed(kind: Integer, before: int | None, after: int | None) -> Integer:
    """Narrow the range of a year to those between others, if there are any."""
    low = kind.low if before is None else max(kind.low, before + 1)
    high = kind.high if after is None else min(kind.high, after - 1)
    return replace(kind, low=low, high=high) if low <= high else kind


def _time_between(before: datetime | None, after: datetime | None, rng: Random) -> datetime | None:
    """Sample a time of the same day, at most ten hours from the others; nothing if there is none."""
    low, high = _minutes(before), _minutes(after)
    first = max(0, high - 600) if before is None else low + 5
    last = min(1435, low + 600) if after is None else high - 5
    moment = before or after
    if moment is None or first > last:
        return None
    minute = rng.randrange(first, last + 1, 5)
    return moment.replace(hour=minute // 60, minute=minute % 60)


def _minutes(moment: datetime | None) -> int:
    return moment.hour * 60 + moment.minute if moment else 0


def _span(kind: Kind, rng: Random) -> timedelta:
    """Sample how long something lasts."""
    if isinstance(kind, moments.Stamp):
        return timedelta(minutes=5 * rng.choice([rng.randint(1, 24), rng.randint(1, 300), rng.randint(1, 4000)]))
    if isinstance(kind, moments.Month):
        return timedelta(days=rng.randint(31, 1500))
    return timedelta(days=rng.choice([rng.randint(1, 14), rng.randint(1, 90), rng.randint(1, 700)]))
