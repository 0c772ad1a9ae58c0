"""Slots that a document says nothing about, though it states values of the same kinds."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import NamedTuple

from constrain.demo.synth import pools
from constrain.demo.synth.family import trained_families
from constrain.demo.synth.kinds import Boolean, Enum, Person
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import parse_kind

_GENERAL = 0.6
"""Share of the slots that many documents could have; the others are of families."""

_ALIKE = 0.75
"""Share of the slots that are of a kind that the document states a value of, where there is such a slot."""

_TRIES = 12
"""Number of slots that are tried for a document."""

_ALTERNATIVES = 5
"""Number of slots of which that is tried which has most words in common with a document."""

#: Words of labels that say of which kind a value is rather than which value.
_PLAIN = frozenset(
    "address after amount and area before birth code company cost date days email for from identifier kind last level "
    "link name not number page person phone place price rate size sum telephone that the time title total type value "
    "was with year".split()
)


class _Way(NamedTuple):
    """A way to reach somebody: the specification of its kind, its labels, and what in a text may be one."""

    spec: str
    labels: tuple[str, ...]
    signs: re.Pattern[str]


_NUMBERS = re.compile(r"[+(]\d|\d{3,}[ ./-]*\d{3,}|(\d{2}[ .-]){4}|\b(call|dial|fax|phone|tele?)", re.IGNORECASE)
_WAYS = (
    _Way("email", ("{} email", "email of the {}", "{} email address"), re.compile("@|mail", re.IGNORECASE)),
    _Way("phone", ("{} phone", "phone of the {}", "{} phone number"), _NUMBERS),
    _Way("phone", ("{} mobile", "mobile number of the {}"), _NUMBERS),
    _Way("phone", ("{} fax", "fax of the {}"), _NUMBERS),
)
#: Words of labels that do not name a person or company, such as *signed by*.
_UNFIT = frozenset("at by for from full is name names on to who whom with".split())


@dataclass(frozen=True)
class _Candidate:
    """A slot with the labels of its family, or its own, and the stems of the words of all its labels."""

    slot: Slot
    labels: frozenset[str]
    stems: frozenset[str]


def unanswered(text: str, slots: Sequence[Slot], stated: Sequence[Slot], count: int, rng: Random) -> list[Slot]:
    """Select up to ``count`` slots that ``text`` does not state.

    No word of their labels, up to its ending, is in the text or in a label of ``slots``; those that come from a family
    come from one that has no label of ``slots``.

    Args:
        slots: all slots of the document, and of others in the text.
        stated: those that the text states; the slots selected are mostly of kinds of theirs.
    """
    labels = {label for slot in slots for label in slot.labels}
    known = " ".join([text, *sorted(labels)]).lower()
    kinds = [type(slot.kind).__name__ for slot in stated]
    chosen: list[Slot] = []
    for _ in range(_TRIES):
        if len(chosen) == count:
            break
        pool = _general() if rng.random() < _GENERAL else _special()
        alike = [kind for kind in kinds if kind in pool] if rng.random() < _ALIKE else []
        found = rng.choice(pool[rng.choice(alike or list(pool))])
        if labels.isdisjoint(found.labels) and not any(stem in known for stem in found.stems):
            chosen.append(replace(found.slot, key=f"other {len(chosen)}"))
            known += " ".join(found.stems)
    return chosen


def partly_named(text: str, asked: Sequence[Slot], count: int, rng: Random) -> list[Slot]:
    """Select up to ``count`` slots of which ``text`` has some words, but not those that tell their labels from others.

    A text about a delivery may so be asked for a delivery note. Each label has a word such that neither it nor one
    that means the same is in the text or in a label of ``asked``, up to its ending.

    Args:
        asked: slots that the schema asks for, and all that the text may state.
    """
    labels = {label for slot in asked for label in slot.labels}
    known = " ".join([text, *sorted(labels)]).lower()
    pool = _by_stem()
    shared = sorted(_stems([known]) & pool.keys())
    chosen: list[Slot] = []
    for _ in range(_TRIES if shared else 0):
        if len(chosen) == count:
            break
        some = [rng.choice(pool[rng.choice(shared)]) for _ in range(_ALTERNATIVES)]
        found = max(some, key=lambda each: sum(stem in known for stem in each.stems))
        if labels.isdisjoint(found.labels) and all(_is_missing(label, known) for label in found.slot.labels):
            chosen.append(replace(found.slot, key=f"partly {len(chosen)}"))
            known += " ".join(found.slot.labels)
    return chosen


def _is_missing(label: str, known: str) -> bool:
    """Whether some telling word of a label is not known, and none that means the same."""
    return any(all(stem not in known for stem in stems) for stems in _alike(label))


@cache
def _alike(label: str) -> tuple[frozenset[str], ...]:
    """Return, for each telling word of a label, the stems of the words that mean the same."""
    words = [word for word in re.findall(r"[^\W\d_]{3,}", label.lower()) if word not in _PLAIN]
    synonyms = (pools.synonyms().get(word, ()) + pools.label_synonyms().get(word, ()) for word in words)
    return tuple(frozenset({word[:5], *_stems(others)}) for word, others in zip(words, synonyms, strict=True))


def unknown_contact(text: str, stated: Sequence[Slot], rng: Random) -> list[Slot]:
    """Select a way to reach somebody whom ``text`` names, unless one of its kind may stand there."""
    named = [slot for slot in stated if isinstance(slot.kind, Person) or getattr(slot.kind, "name", "") == "company"]
    if not named:
        return []
    label, way = rng.choice(rng.choice(named).labels), rng.choice(_WAYS)
    if not _UNFIT.isdisjoint(label.split()) or way.signs.search(text):
        return []
    return [Slot("other contact", parse_kind(way.spec), tuple(each.format(label) for each in way.labels))]


def _stems(texts: Iterable[str]) -> set[str]:
    """Return the beginnings of the words that tell values apart."""
    words = re.findall(r"[^\W\d_]{3,}", " ".join(texts).lower())
    return {word[:5] for word in words if word not in _PLAIN}


@cache
def _general() -> dict[str, list[_Candidate]]:
    """Read the slots that many documents could have, by the names of the classes of their kinds."""
    entries = [line.split(" | ") for line in pools.words("unanswered")]
    slots = [Slot("", parse_kind(spec), tuple(labels.split(", "))) for spec, labels in entries]
    return _by_kind(_Candidate(slot, frozenset(slot.labels), frozenset(_stems(slot.labels))) for slot in slots)


@cache
def _special() -> dict[str, list[_Candidate]]:
    """Collect the slots of families that are peculiar to one, under their labels of several words.

    Classes and truth values are left out: a text may answer these without any word of their labels.
    """
    uses = Counter(label for family in trained_families() for slot in family.slots for label in set(slot.labels))
    found: list[_Candidate] = []
    for family in trained_families():
        own = frozenset(label for slot in family.slots for label in slot.labels)
        for slot in family.slots:
            telling = tuple(label for label in slot.labels if len(_stems([label])) > 1)
            if telling and not isinstance(slot.kind, (Enum, Boolean)) and all(uses[each] == 1 for each in slot.labels):
                stems = frozenset(_stems(slot.labels))
                found.append(_Candidate(replace(slot, labels=telling), own, stems))
    return _by_kind(found)


@cache
def _by_stem() -> dict[str, list[_Candidate]]:
    """Index all slots by the stems of the words of their labels."""
    grouped: dict[str, list[_Candidate]] = defaultdict(list)
    for each in (each for pool in (_general(), _special()) for found in pool.values() for each in found):
        for stem in each.stems:
            grouped[stem].append(each)
    return dict(grouped)


def _by_kind(candidates: Iterable[_Candidate]) -> dict[str, list[_Candidate]]:
    grouped: dict[str, list[_Candidate]] = defaultdict(list)
    for each in candidates:
        grouped[type(each.slot.kind).__name__].append(each)
    return dict(grouped)
