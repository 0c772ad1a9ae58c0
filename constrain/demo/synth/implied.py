"""Matters that a sentence settles without their name: truths by implication or negation, and classes by meaning.

The files ``words/implied.txt``, ``words/meanings.txt`` and ``words/predicates.txt`` declare them by topics::

    # jobs | Vacancy, We are hiring
    == own tools required, bring own tools | whether applicants need tools of their own
    ! toolbox
    + Bring your own kit. / You will work with what you bring.
    - Everything from the drill to the ladder is provided.
    ~ The van has room for tools.
    == work place, remote policy | where the work is done
    = fully remote/remote: Nobody asks where you live. / There is no office to go to.
    = on site: We all sit under one roof.

First the labels and a description. Then the answers with sentences that imply them, templates of
:mod:`constrain.demo.synth.template` between `` / ``: ``+`` yes, ``-`` no, ``=`` a class with its spellings, or an
integer. Sentences after ``~`` are about the matter but leave it open. Words after ``!`` are signs that a text may
settle it, beside the words of the labels. A matter with a line of things after ``*`` is as many matters, with one of
them in place of every ``#``, without its article after *no* and in labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any, NamedTuple

from constrain.demo.synth import kinds, pools, template
from constrain.demo.synth.kinds import Ask, Kind, Schema, Value
from constrain.demo.synth.plain_answers import plain_answer
from constrain.demo.synth.quantities import Integer
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import distractor

_OPEN = 0.34
"""Share of the matters that the text leaves open."""

_NEUTRAL = 0.7
"""Share of the open matters that the text has a sentence about."""

_UNKNOWN = 0.2
"""Share of the classes for which a schema has a value for texts that leave the matter open."""

_TRIES = 4
"""Number of matters that are tried for each that is wanted."""

#: Words of labels that occur in texts about other matters as well.
_COMMON = frozenset(
    "accepted affected agreed allowed along and any approved are arranged arrived asks attached available been before "
    "billed booked bring brings called can cancelled charge charged closed closure completed contains covered covers "
    "damage damaged date deal delivered detected does done down employer enclosed enjoys extra fine finished fond for "
    "found from fully gets given goes good happy has have hits included into its kind known level liked likes may "
    "must needed needs new not number off offer offered offers only open order organiser own part payment per "
    "performed permitted place planned possible prescribed present price provided provides pupils reason received "
    "rent required requires result shut started state status still suffers supported supports takes teaches that the "
    "there this timetable type used wanted wants was with work working works yes you your".split()
)


@dataclass(frozen=True)
class Implied(Kind):
    """An answer that a sentence implies; ``data`` is the answer.

    Attributes:
        told: sentences for each answer.
        asked: the kind of the answers, as which schemas ask for them.
    """

    told: tuple[tuple[Any, tuple[str, ...]], ...]
    asked: Kind

    def sample(self, rng: Random, mode: str = "") -> Value:
        answer, sentences = rng.choice(self.told)
        return Value(_written(rng.choice(sentences), rng), answer)

    def ask(self, rng: Random) -> Ask:
        return self.asked.ask(rng)


@dataclass(frozen=True)
class Classes(Kind):
    """One of a few classes, each with spellings; ``data`` is the first spelling."""

    options: dict[str, tuple[str, ...]]

    def sample(self, rng: Random, mode: str = "") -> Value:
        option = rng.choice(list(self.options))
        return Value(rng.choice(self.options[option]), option)

    def ask(self, rng: Random) -> Ask:
        style = rng.choice(_SPELLINGS)
        named = {option: style(rng.choice(spellings)) for option, spellings in self.options.items()}
        if rng.random() < 0.5:
            named = dict(rng.sample(list(named.items()), len(named)))
        if rng.random() < 0.06:
            return _coded(list(named), rng)
        schema: Schema = {"enum": list(named.values())}
        if rng.random() < 0.5:
            schema = {"type": "string", **schema}
        return Ask(schema, lambda value: named[value.data])


def _snake(text: str) -> str:
    return text.replace(" ", "_").replace("-", "_")


def _camel(text: str) -> str:
    return re.sub(r"[ -](\w)", lambda match: match.group(1).upper(), text)


_SPELLINGS: tuple[Callable[[str], str], ...] = (
    _snake, _snake, _snake, str, str, str.capitalize, str.upper, _camel, lambda text: _snake(text).upper(),
    lambda text: text.replace(" ", "-"),
)  # fmt: skip


def _coded(options: list[str], rng: Random) -> Ask:
    """Ask for a class by a code that a description explains."""
    codes = rng.choice(["ABCDEFGHIJ", "123456789", ["K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9"]])
    by_option = dict(zip(options, codes, strict=False))
    explained = ", ".join(f"{code} = {option}" for option, code in by_option.items())
    return Ask({"enum": list(by_option.values()), "description": explained}, lambda value: by_option[value.data])


@dataclass(frozen=True)
class Matter:
    """Something that a text may settle by implication.

    Attributes:
        neutral: sentences that are about it and leave it open.
        signs: beginnings of words of texts that may settle it, each after a space.
    """

    labels: tuple[str, ...]
    about: str
    kind: Implied
    neutral: tuple[str, ...]
    signs: frozenset[str]


class Topic(NamedTuple):
    """Matters of the same sort of texts, with titles of these."""

    titles: tuple[str, ...]
    matters: tuple[Matter, ...]

    def title(self, rng: Random) -> str:
        return _written(rng.choice(self.titles), rng)


class Told(NamedTuple):
    """A matter in a text: its slot, the sentence about it or ``""``, and the value, or ``None`` if it is left open."""

    slot: Slot
    sentence: str
    value: Value | None


def tell(matters: Sequence[Matter], text: str, count: int, rng: Random) -> list[Told]:
    """Select up to ``count`` matters that ``text`` says nothing about, and what is to be said about each.

    Args:
        text: the text with the labels of what else is asked for; no sign of a matter selected occurs in it, or in what
            is said about the others.
    """
    known, signs = _plain(text), set[str]()
    chosen: list[Told] = []
    for matter in rng.sample(matters, min(len(matters), count * _TRIES)):
        if len(chosen) == count:
            break
        if any(sign in known for sign in matter.signs):
            continue
        told = _told(matter, f"implied {len(chosen)}", rng)
        said = _plain(told.sentence)
        if not any(sign in said for sign in signs):
            chosen.append(told)
            signs |= matter.signs
            known += said + _plain(" ".join(matter.labels))
    return chosen


def _plain(text: str) -> str:
    """Return the words of a text in lower case, each after a space."""
    return re.sub(r"\W+", " ", f" {text.lower()}")


def _told(matter: Matter, key: str, rng: Random) -> Told:
    offered = rng.random() < _UNKNOWN
    slot = Slot(key, matter.kind, matter.labels, matter.about)
    asked = replace(slot, kind=_with_unknown(matter.kind)) if offered else slot
    if rng.random() >= _OPEN:
        value = matter.kind.sample(rng)
        if rng.random() < _PLAINLY:
            value = _plainly(matter, value.data, rng)
            return Told(asked, value.text, value)
        return Told(asked, _named(value.text, matter, rng), value)
    if not matter.neutral or rng.random() >= _NEUTRAL:
        return Told(slot, "", None)
    sentence = _written(rng.choice(matter.neutral), rng)
    return Told(asked, sentence, Value(sentence, _UNKNOWNS[0]) if asked.kind != slot.kind else None)


def _plainly(matter: Matter, answer: Any, rng: Random) -> Value:
    """Tell an answer by the words of a label; a class by its own name, and a number by itself."""
    if isinstance(answer, bool):
        return Value(plain_answer(matter.labels, answer, rng), answer).capitalised()
    named = matter.kind.asked.options[answer] if isinstance(matter.kind.asked, Classes) else (str(answer),)
    return Value(f"{rng.choice(matter.labels)}: {rng.choice(named)}", answer).capitalised()


def _named(sentence: str, matter: Matter, rng: Random) -> str:
    """Put a label before a fragment that would say nothing without it."""
    if len(sentence) > _FRAGMENT or rng.random() < 0.2:
        return sentence
    return f"{rng.choice(matter.labels).capitalize()}: {sentence}"


_PLAINLY = 0.3
"""Share of the answers that are told by the words of a label or a class."""

_FRAGMENT = 14
"""Number of characters of the longest answers that mostly stand after a label."""

_UNKNOWNS = ("unknown", "not stated", "unclear", "not specified")


def _with_unknown(kind: Implied) -> Implied:
    if not isinstance(kind.asked, Classes) or any(_UNKNOWNS[0] in names for names in kind.asked.options.values()):
        return kind
    return replace(kind, asked=Classes({**kind.asked.options, _UNKNOWNS[0]: _UNKNOWNS}))


def _written(sentence: str, rng: Random) -> str:
    return template.render(template.parse(sentence), rng, lambda key, mode: distractor(key, rng))


#: Ends of sentences within a paragraph, of paragraphs and lines that are sentences, and of the text.
_ENDS = re.compile(r"(?<=[a-z)]{4}[.!?])(?= [A-Z])|(?<=[a-z)]{2}[.!?])(?=\n)|\Z")


def woven(text: str, sentences: Iterable[str], places: Sequence[tuple[int, int]], rng: Random) -> str:
    """Insert sentences between those of a text, outside of ``places``."""
    ends = [match.start() for match in _ENDS.finditer(text)]
    free = [at for at in ends if not any(start < at < end for start, end in places)]
    chosen = [(rng.choice(free) if rng.random() > _FIRST else 0, sentence) for sentence in sentences]
    for at, sentence in sorted(chosen, reverse=True):
        text = _inserted(text, at, sentence, rng)
    return text


_FIRST = 0.08
"""Share of the sentences that stand before a text."""


def _inserted(text: str, at: int, sentence: str, rng: Random) -> str:
    before, after = text[:at], text[at:]
    if not before:
        return f"{sentence}{rng.choice(_GAPS)}{after}"
    in_line = before[-1] in ".!?" and (after[:1] == " " or rng.random() < 0.6)
    return f"{before}{' ' if in_line else rng.choice(_GAPS)}{sentence}{after}"


_GAPS = ("\n", "\n", "\n\n")


@cache
def all_matters() -> tuple[Matter, ...]:
    return tuple(matter for topic in topics() for matter in topic.matters)


@cache
def topics() -> tuple[Topic, ...]:
    """Read the topics of all files; the first mention of a topic has its titles."""
    found: dict[str, Topic] = {}
    lines = (line for name in ("implied", "meanings", "predicates") for line in pools.words(name))
    for block in "\n".join(["", *lines]).split("\n# ")[1:]:
        head, *matters = block.split("\n== ")
        name, _, titles = head.partition(" | ")
        topic = found.setdefault(name, Topic(tuple(titles.split(", ")), ()))
        added = (parse_matter(each) for matter in matters for each in about_things(matter))
        found[name] = topic._replace(matters=(*topic.matters, *added))
    return tuple(found.values())


def about_things(block: str) -> list[str]:
    """Write the block of a matter for each of its things; the labels have them without articles."""
    head, *lines = block.split("\n")
    things = [thing for line in lines if line.startswith("* ") for thing in line[2:].split(", ")]
    rest = "\n".join(line for line in lines if not line.startswith("* "))
    return [_about(thing, head, rest) for thing in things] or [block]


def _about(thing: str, head: str, rest: str) -> str:
    bare = re.sub(r"^(an?|the|my|your own) ", "", thing)
    labels, bar, about = head.partition(" | ")
    denied = re.sub(r"\b([Nn]o) #", rf"\1 {bare}", rest)
    capital = thing[0].upper() + thing[1:]
    first = re.sub(r"(^[-+~] |/ )#", lambda match: match.group(1) + capital, denied, flags=re.MULTILINE)
    return f"{labels.replace('#', bare)}{bar}{about.replace('#', thing)}\n{first.replace('#', thing)}"


@dataclass
class _Draft:
    """A matter during parsing."""

    told: dict[str, tuple[str, ...]] = field(default_factory=dict)
    neutral: tuple[str, ...] = ()
    signs: frozenset[str] = frozenset()

    def add(self, mark: str, rest: str) -> None:
        if mark == "!":
            self.signs |= {f" {sign}" for sign in rest.split()}
        elif mark == "~":
            self.neutral += _sentences(rest)
        elif mark == "=":
            name, _, sentences = rest.partition(": ")
            self.told[name] = _sentences(sentences)
        else:
            self.told[mark] = _sentences(rest)


def parse_matter(block: str) -> Matter:
    """Parse a matter of a file, without the leading ``==``.

    Raises:
        KeyError: a line has no mark that is known, or a matter has truths beside classes.
    """
    head, *lines = block.split("\n")
    names, _, about = head.partition(" | ")
    draft = _Draft()
    for line in lines:
        draft.add(line[0], line[2:])
    labels = tuple(names.split(", "))
    return Matter(labels, about, _kind(draft.told), draft.neutral, draft.signs | _signs(labels))


def _kind(told: dict[str, tuple[str, ...]]) -> Implied:
    if "+" in told or "-" in told:
        return Implied(tuple((_TRUTHS[mark], said) for mark, said in told.items()), kinds.Boolean((), ()))
    if all(name.isdigit() for name in told):
        numbers = [int(name) for name in told]
        return Implied(
            tuple(zip(numbers, told.values(), strict=True)), Integer(min(numbers), max(numbers), grouped=False)
        )
    spellings = {name.split("/")[0]: tuple(name.split("/")) for name in told}
    return Implied(tuple(zip(spellings, told.values(), strict=True)), Classes(spellings))


_TRUTHS = {"+": True, "-": False}


def _sentences(text: str) -> tuple[str, ...]:
    return tuple(sentence.strip() for sentence in text.split(" / "))


def _signs(labels: Iterable[str]) -> frozenset[str]:
    words = re.findall(r"[^\W\d_]{3,}", " ".join(labels).lower())
    return frozenset(f" {word[:5]}" for word in words if word not in _COMMON)
