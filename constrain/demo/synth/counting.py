"""Words that follow numbers: in the singular after one, as in ``1 night`` beside ``2 nights``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from constrain.demo.synth.wordlists import words

_NOUN = re.compile(r" (\w+)\b(?:(['’])(?= )|( are| were| have)\b)?")
_OF_ONE = {" are": " is", " were": " was", " have": " has"}


@cache
def _singulars() -> dict[str, str]:
    """Read the singulars of nouns, by their plurals."""
    return dict(line.split(" ") for line in words("counted"))


def unit_of(number: float, digits: str, unit: str) -> str:
    """Return the unit as it stands after a number, whose unit is given in the plural if it is counted."""
    if number != 1 or digits.lower() not in ("1", "one"):
        return unit
    return " ".join(_singulars().get(word, word) for word in unit.split(" "))


def after_one(text: str) -> str:
    """Put the noun at the start of a text into the singular, if it is one that is counted, with a verb next to it."""
    match = _NOUN.match(text)
    singular = match and _singulars().get(match[1])
    if not match or not singular:
        return text
    end = f"{match[2]}s" if match[2] else _OF_ONE.get(match[3], "")
    return f" {singular}{end}{text[match.end() :]}"


def stated(sentence: str, text: str, data: Any) -> str:
    """Put the text of a value at the ``{}`` of a sentence; ``data`` is its meaning."""
    before, _, after = sentence.partition("{}")
    return f"{before}{text}{after_one(after) if _is_one(data) else after}"


def _is_one(data: Any) -> bool:
    return type(data) is int and data == 1


class Words:
    """The words of a text that is written piece by piece: changed by ``say``, and in the singular after a one."""

    def __init__(self, say: Callable[[str], str] = str) -> None:
        self._say = say
        self._is_one = False

    def filled(self, data: Any) -> None:
        """Note the meaning of the value that has been written."""
        self._is_one = _is_one(data)

    def say(self, words: str) -> str:
        """Return the words to be written next."""
        counted = after_one(words) if self._is_one else words
        self._is_one = False
        return self._say(counted)
