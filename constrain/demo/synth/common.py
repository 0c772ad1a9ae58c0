"""Names, places, firms and things as they are common: what authors of clean documents mention.

The other documents have coined names and arbitrary phrases, so that a model must copy them; but of these alone it would
not learn what the names of people, places and firms look like.
"""

from __future__ import annotations

from random import Random

from constrain.demo.synth.wordlists import words

_RARE = 0.3
"""Share of the names of people and places that are of the long lists of all countries."""


def first_name(rng: Random) -> str:
    return rng.choice(words("first_names" if rng.random() < _RARE else "common_first_names"))


def last_name(rng: Random) -> str:
    name = rng.choice(words("last_names" if rng.random() < _RARE else "common_last_names"))
    return f"{name}-{rng.choice(words('common_last_names'))}" if rng.random() < 0.04 else name


def city(rng: Random) -> str:
    return rng.choice(words("cities" if rng.random() < _RARE else "common_cities"))


def street(rng: Random) -> str:
    """A street with a house number."""
    number = f"{rng.randint(1, 180)}{rng.choice(['', '', '', '', 'a', 'b'])}"
    return rng.choice(words("common_streets")).replace("#", number)


def firm_word(rng: Random) -> str:
    """Name of a firm, without its trade: a word, a last name, or a place."""
    lists = ("common_names_of_firms", "common_names_of_firms", "common_last_names", "common_cities")
    return rng.choice(words(rng.choice(lists)))


def company(rng: Random) -> str:
    if rng.random() < 0.08:
        return f"{last_name(rng)} & {last_name(rng)}"
    return f"{firm_word(rng)} {rng.choice(words('common_trades'))}"


def product(rng: Random) -> str:
    thing = rng.choice(words("common_things"))
    form = rng.random()
    if form < 0.4:
        return thing
    adjective = rng.choice(words("common_adjectives"))
    if form < 0.75:
        return f"{adjective} {thing}"
    return f"{thing}, {adjective}" if form < 0.9 else f"{firm_word(rng)} {thing}"


def topic(rng: Random) -> str:
    """A short title in lower case, such as ``delay with the delivery of the desks``."""
    subject = rng.choice(words("common_subjects"))
    if rng.random() < 0.3:
        return subject.removeprefix("the ")
    text = f"{rng.choice(words('common_matters'))} {subject}"
    return text if rng.random() < 0.4 else text[:1].lower() + text[1:]
