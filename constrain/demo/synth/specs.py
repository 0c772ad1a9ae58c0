"""Kinds of values by their specification in family files, such as ``int 1 40 pcs`` or ``list company 1-3``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random

from constrain.demo.synth import choices, kinds, moments, pools, quantities, spoken
from constrain.demo.synth.habits import apart, is_clean
from constrain.demo.synth.kinds import Kind, Value

_TEXTS: dict[str, kinds.Text] = {
    "company": kinds.Text(pools.company),
    "product": kinds.Text(pools.product),
    "city": kinds.Text(pools.city),
    "street": kinds.Text(pools.street),
    "email": kinds.Text(pools.email, ("email",)),
    "phone": kinds.Text(pools.phone),
    "url": kinds.Text(pools.url, ("uri",)),
    "topic": kinds.Text(pools.topic),
    "title": kinds.Text(lambda rng: pools.topic(rng).title()),
    "word": kinds.Text(pools.name_word),
    "noun": kinds.Text(pools.noun),
    "adjective": kinds.Text(pools.adjective),
    "first_name": kinds.Text(pools.first_name),
    "surname": kinds.Text(pools.last_name),
    "country": kinds.Text(lambda rng: rng.choice(pools.words("countries"))),
    "job": kinds.Text(lambda rng: rng.choice(pools.words("jobs"))),
    "food": kinds.Text(lambda rng: rng.choice(pools.words("foods"))),
    "package": kinds.Text(pools.package),
    "path": kinds.Text(pools.path),
    "version": kinds.Text(pools.version),
    "handle": kinds.Text(pools.handle),
    "uuid": kinds.Text(lambda rng: pools.code("~~~~~~~~-~~~~-4~~~-a~~~-~~~~~~~~~~~~", rng), ("uuid",)),
    "ip": kinds.Text(lambda rng: ".".join(str(rng.randint(1, 254)) for _ in range(4)), ("ipv4",)),
}
_NOUNS: dict[str, Callable[[], Kind]] = {
    "person": kinds.Person,
    "address": kinds.Address,
    "time": moments.Time,
    "clock": lambda: moments.Time(spoken=True),
    "stamp": moments.Stamp,
    "weekdays": choices.Weekdays,
}


@cache
def parse_kind(spec: str) -> Kind:
    """Parse the specification of a kind, such as ``int 1 40 pcs`` or ``enum low=minor/small, high``.

    Raises:
        ValueError: no kind has that name.
    """
    name, _, rest = spec.partition(" ")
    if name in _TEXTS:
        return replace(_TEXTS[name], name=name)
    if name in _NOUNS:
        return _NOUNS[name]()
    words = rest.split()
    if name in ("date", "day"):
        return moments.Date(*_years(words), spoken=name == "day")
    if name == "later":
        return moments.Later(least=int(words[0]), most=int(words[1]))
    if name == "month":
        return moments.Month(*_years(words))
    if name in spoken.UNITS:
        return spoken.Duration(spoken.UNITS[name], int(words[0]), int(words[1]))
    if name == "share":
        return spoken.Share(int(words[0]), int(words[1]))
    if name == "count":
        return spoken.Count(int(words[0]), int(words[1]), " ".join(words[2:]))
    if name == "code":
        return kinds.Text(_one_of(_patterns(rest), pools.code) if rest else _random_code, name="code")
    if name == "pick":
        return kinds.Text(_one_of(_alternatives(rest), _varied))
    if name == "money":
        return quantities.Money(float(words[0]), float(words[1]), *words[3:5])
    if name == "int":
        return quantities.Integer(int(words[0]), int(words[1]), " ".join(words[2:]))
    if name == "plain":
        return quantities.Integer(int(words[0]), int(words[1]), grouped=False)
    if name == "num":
        return quantities.Decimal(float(words[0]), float(words[1]), int(words[2]), " ".join(words[3:]))
    if name == "enum":
        return _enum(rest)
    if name == "meant":
        return spoken.Meant(tuple(map(_meant, re.split(r", (?=\d+=)", rest))))
    if name == "tied":
        return _tied(parse_kind(" ".join(words[1:])), words[0])
    if name == "some":
        return choices.Choices(_enum(" ".join(words[:-1])), *parse_range(words[-1]))
    if name == "bool":
        yes, no = rest.split("~")
        return kinds.Boolean(tuple(yes.strip().split("/")), tuple(no.strip().split("/")))
    if name == "list":
        return kinds.Listing(parse_kind(" ".join(words[:-1])), *parse_range(words[-1]))
    raise ValueError(f"no kind of value is called {name!r} (in {spec!r})")


def mention(key: str, rng: Random) -> Value:
    """Sample a distractor from its hole in a wording, such as ``=money 10 900``; the record goes on as before it."""
    with apart(rng):
        return parse_kind(key[1:]).sample(rng)


def distractor(key: str, rng: Random) -> str:
    """Sample the text of a distractor."""
    return mention(key, rng).text


def _alternatives(text: str) -> list[str]:
    """Split at every ``/``; a doubled one is a slash in the text itself, as in ``mg//l``."""
    parts = text.replace("//", "\0").split("/")
    return [part.replace("\0", "/") for part in parts if part]


def _patterns(text: str) -> list[str]:
    """Parse the patterns of a code.

    Raises:
        ValueError: one is a bare digit or two, or some letters, beside a long one: the ``/`` is one of the code itself.
    """
    patterns = _alternatives(text)
    part = next((pattern for pattern in patterns if _PART_OF_CODE.fullmatch(pattern)), None)
    if part and max(len(_PLACES.findall(pattern)) for pattern in patterns) >= _LONG_CODE:
        raise ValueError(f"{part!r} is no code beside longer ones: write // for a slash within a code, in {text!r}")
    return patterns


_PLACES = re.compile("[#@%~]")
_PART_OF_CODE = re.compile(r"[#@%~]{1,2}|[^\W\d_]{1,3}")
_LONG_CODE = 4
"""Number of placeholders from which a pattern is rather one of identifiers than of rooms, lines or seats."""


def _varied(text: str, rng: Random) -> str:
    """Change a phrase now and then, so that it has to be copied, and its end to be found."""
    if is_clean(rng):
        return text
    form = rng.random()
    if form < 0.04 and text[0].isalpha():
        return f"{pools.adjective(rng)} {text}"
    words = text.split(" ")
    plain = [index for index, word in enumerate(words) if word.isalpha() and len(word) > 3]
    if form < 0.14 and len(plain) > 1:
        words[rng.choice(plain)] = pools.any_word(rng)
        return " ".join(words)
    return text


def _one_of(texts: list[str], finish: Callable[[str, Random], str]) -> Callable[[Random], str]:
    return lambda rng: finish(rng.choice(texts), rng)


def _random_code(rng: Random) -> str:
    return pools.code(pools.code_pattern(rng), rng)


def _enum(text: str) -> kinds.Enum:
    """Parse classes, of which all or none have phrases: a comma within a phrase would begin a class without any.

    Raises:
        ValueError: some classes have phrases, and some have none.
    """
    options = [option.strip() for option in text.split(",")]
    if len({"=" in option for option in options}) > 1:
        raise ValueError(f"a class without phrases among others with phrases, in {text!r}")
    return kinds.Enum(dict(map(_option, options)))


def _option(text: str) -> tuple[str, tuple[str, ...]]:
    label, _, phrases = text.partition("=")
    return label, tuple(_alternatives(phrases)) if phrases else (label,)


def _tied(kind: Kind, name: str) -> Kind:
    if not isinstance(kind, kinds.Enum | kinds.Boolean | spoken.Meant):
        raise ValueError(f"only classes, truths and numbers of phrases can be tied, not {kind!r}")
    return replace(kind, tied=name)


def _meant(text: str) -> tuple[int, tuple[str, ...]]:
    number, _, phrases = text.partition("=")
    return int(number), tuple(_alternatives(phrases))


def _years(words: list[str]) -> tuple[int, int]:
    return (int(words[0]), int(words[1])) if words else (1992, 2031)


def parse_range(text: str) -> tuple[int, int]:
    low, high = text.split("-")
    return int(low), int(high)
