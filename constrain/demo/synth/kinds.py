"""Kinds of values: how they are printed in a document, and which schemas may ask for them. Kinds of text are here.

A kind samples a :class:`Value`, which is printed in the document, and independently an :class:`Ask`, a schema with a
function that computes the gold value from any value of this kind. So a schema may ask for values that are not in the
document.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from constrain.demo.synth import pools
from constrain.demo.synth.habits import is_formal, pick

Schema = dict[str, Any]


@dataclass(frozen=True)
class Value:
    """A value in a document: the printed ``text``, and its meaning ``data``, whose type depends on the kind.

    ``article`` is the number of characters at the beginning of ``text`` that are not copied.
    """

    text: str
    data: Any = None
    article: int = 0

    def capitalised(self) -> Value:
        """Return the value as it stands at the start of a sentence."""
        return replace(self, text=self.text[:1].upper() + self.text[1:])


@dataclass(frozen=True)
class Ask:
    """A schema for a value, and a function from any value of the kind to the gold value."""

    schema: Schema
    read: Callable[[Value], Any]


class Kind(ABC):
    """A kind of value."""

    @abstractmethod
    def sample(self, rng: Random, mode: str = "") -> Value:
        """Sample a value; ``mode`` selects a layout if the kind has several."""

    @abstractmethod
    def ask(self, rng: Random) -> Ask:
        """Sample a schema for values of this kind."""

    def parts(self, rng: Random) -> list[tuple[str, Ask]]:
        """Sample schemas for parts of a value, each with its label."""
        return []


def verbatim(value: Value) -> str:
    return value.text[value.article :]


_ARTICLE = re.compile(r"(?:the|an?) (?=\w)")
_LONG_PHRASE = 5
"""Number of spaces from which a phrase is rather a sentence."""


@dataclass(frozen=True)
class Text(Kind):
    """A value that is copied verbatim, such as a name, title or code. ``name`` identifies such kinds.

    The article of a short noun phrase is not copied: it belongs to the sentence.
    """

    make: Callable[[Random], str]
    formats: tuple[str, ...] = ()
    name: str = ""

    def sample(self, rng: Random, mode: str = "") -> Value:
        text = self.make(rng)
        article = _ARTICLE.match(text)
        return Value(text, article=article.end() if article and text.count(" ") < _LONG_PHRASE else 0)

    def ask(self, rng: Random) -> Ask:
        schema: Schema = {"type": "string"}
        if self.formats and rng.random() < 0.5:
            schema["format"] = rng.choice(self.formats)
        elif rng.random() < 0.05:
            schema["minLength"] = 1
        return Ask(schema, verbatim)


RANKS = ("Dr", "Dr.", "Prof.", "Prof", "Professor", "Rev.", "Capt.", "Captain", "Sgt.", "Judge", "Inspector", "Sister")

_RANKED = 0.09
"""Share of the names that have a rank, of authors who use no other forms of address."""


@dataclass(frozen=True)
class Person(Kind):
    """A person. A rank, such as Dr., is part of the name, other forms of address are not.

    The mode is a rank that the name has, or ``bare`` for a name without any.
    """

    def sample(self, rng: Random, mode: str = "") -> Value:
        first, last = pools.given_names(rng), pools.family_name(rng)
        text = f"{first} {last}"
        if mode not in RANKS and mode != "bare" and not is_formal(rng) and rng.random() < _RANKED:
            mode = rng.choice(RANKS)
        if mode in RANKS:
            return Value(f"{mode} {text}", (first, last))
        form = rng.random()
        if form < 0.04:
            return Value(text.upper(), (first.upper(), last.upper()))
        if form < 0.08:
            return Value(f"{first} {last.upper()}", (first, last.upper()))
        return Value(f"{last}, {first}" if form < 0.11 else text, (first, last))

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


@dataclass(frozen=True)
class Enum(Kind):
    """One of a few classes; ``options`` maps each to phrases for it; ``data`` is the class.

    Mode ``label`` mostly prints the class itself, unless classes are told by their meaning only. Choices of a document
    that are ``tied`` by one name fit each other.
    """

    options: dict[str, tuple[str, ...]]
    by_meaning: bool = False
    tied: str = ""

    def sample(self, rng: Random, mode: str = "") -> Value:
        return self.of_class(pick(list(self.options), self.tied, rng), rng, mode)

    def of_class(self, option: str, rng: Random, mode: str = "") -> Value:
        """Sample a value of one of the classes."""
        if mode == "label" and not self.by_meaning and rng.random() < 0.7:
            return Value(rng.choice(_PRINTED_CLASSES)(option), option)
        return Value(rng.choice(self.options[option]), option)

    def ask(self, rng: Random) -> Ask:
        if rng.random() < 0.08:
            return Ask({"type": "string"}, verbatim)
        labels, style = self.labels(rng)
        schema: Schema = {"enum": labels} if rng.random() < 0.5 else {"type": "string", "enum": labels}
        return Ask(schema, lambda v: style(v.data))

    def labels(self, rng: Random) -> tuple[list[str], Callable[[str], str]]:
        """Sample the names that a schema gives to the classes, and the function that makes them from the classes."""
        style = rng.choice(_ASKED_CLASSES)
        options = list(self.options)
        if rng.random() < 0.5:
            rng.shuffle(options)
        if rng.random() < 0.12:
            options.append(rng.choice(["other", "unknown", "none of these"]))
        return [style(option) for option in options], style


_PRINTED_CLASSES: tuple[Callable[[str], str], ...] = (str, str, str.upper, str.capitalize)
_ASKED_CLASSES: tuple[Callable[[str], str], ...] = (
    *(str, str, str, str.upper, str.capitalize),
    lambda label: label.replace(" ", "_"),
)
_TRUTHS = (("yes", "no"), ("Yes", "No"), ("true", "false"), ("True", "False"), ("on", "off"), ("y", "n"), ("✓", "✗"))


@dataclass(frozen=True)
class Boolean(Kind):
    """A Boolean; ``data`` is the truth value. Mode ``label`` prints yes or no in some form.

    ``tied`` is as for :class:`Enum`.
    """

    yes: tuple[str, ...]
    no: tuple[str, ...]
    tied: str = ""

    def sample(self, rng: Random, mode: str = "") -> Value:
        truth = pick((True, False), self.tied, rng)
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
        items = distinct([self.item.sample(rng) for _ in range(rng.randint(max(1, self.low), self.high))])
        texts = [item.text for item in items]
        if mode == "lines":
            bullet = rng.choice(["- ", "* ", "• ", "", "  - ", "+ "])
            return Value("\n".join(bullet + text for text in texts), items)
        if any("," in text for text in texts):
            return Value(rng.choice(["; ", "; ", " / ", " | "]).join(texts), items)
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
    """Build an object schema that requires all of ``properties``."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def distinct(values: list[Value]) -> list[Value]:
    return list({value.text: value for value in values}.values())


def join_and(texts: list[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]
