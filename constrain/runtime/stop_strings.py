"""Stop strings and banned strings: matched in the output text, which is held back while one may have begun in it.

Text is released once no stop or banned string can still begin in it. Such a string therefore never overlaps released
text, and only the held text has to be searched.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from constrain.runtime.detokenizer import Detokenizer
from constrain.runtime.outputs import Piece, SampledToken


@dataclass(slots=True)
class Held:
    """A token whose text is held, the number of characters at its start that are left out, and its end in the text."""

    token: SampledToken
    skip: int
    end: int


@dataclass(frozen=True)
class Stop:
    """A stop string that was found, and its start in the held text."""

    string: str
    start: int


@dataclass(frozen=True)
class Banned:
    """A banned string that was found: the number of held tokens before the one in which it begins."""

    kept: int


class StopStringMatcher:
    """Output text that is not released yet, with its tokens.

    Attributes:
        text: the held text.
        tokens: its tokens.
    """

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str], banned: Sequence[str]) -> None:
        """``stop``: strings that end the text. ``banned``: strings that must not occur, ignoring case."""
        self._detokenizer = detokenizer
        self._stop = list(stop)
        self._banned = [_lower(string) for string in banned]
        self.text = ""
        self.tokens: list[Held] = []
        self._open = 0

    def copy(self) -> StopStringMatcher:
        """Return an independent copy."""
        made = copy.copy(self)
        made._detokenizer = self._detokenizer.copy()
        made.tokens = [copy.copy(held) for held in self.tokens]
        return made

    def pass_through(self, token: int) -> str | None:
        """Return the text of a token that can be released at once; ``None`` if it, or earlier text, has to be held.

        With stop or banned strings, most tokens can: no such string occurs or begins in their text.
        """
        text = None if self.tokens else self._detokenizer.whole(token)
        if text is None or not (self._stop or self._banned):
            return text
        lower = _lower(text) if self._banned else ""
        return None if _touches(text, self._stop) or _touches(lower, self._banned) else text

    def push(self, token: SampledToken, skip: int = 0) -> None:
        """Add a token, without the first ``skip`` characters of its text."""
        if not self._detokenizer.is_part(token.id):
            self._add(self._detokenizer.flush())
        text = self._detokenizer.push(token.id)[skip:]
        self.tokens.append(Held(token, skip, len(self.text)))
        self._open += 1
        if self._detokenizer.complete:
            self._add(text)

    def match(self, stop: bool) -> Stop | Banned | None:
        """Find a banned string in the held text or, with ``stop``, a stop string with no banned string before it."""
        ending = _leftmost(self.text, self._stop) if stop else None
        before = self.text[: ending[0]] if ending else self.text
        excluded = _leftmost(_lower(before), self._banned) if self._banned else None
        if excluded is not None:
            return Banned(next(i for i, held in enumerate(self.tokens) if held.end > excluded[0]))
        return None if ending is None else Stop(ending[1], ending[0])

    def undecided(self, stop: bool) -> bool:
        """Return whether a character is incomplete, or a banned (with ``stop``, also a stop) string may have begun."""
        if not self._detokenizer.complete or (self._banned and _may_begin(_lower(self.text), self._banned)):
            return True
        return stop and _may_begin(self.text, self._stop)

    def flush(self) -> None:
        """Add the text of an incomplete character, since none follows that could complete it."""
        self._add(self._detokenizer.flush())

    def release(self) -> Piece:
        """Release all held text, incomplete characters included."""
        return self.rewind(0)

    def rewind(self, kept: int) -> Piece:
        """Remove all tokens but the first ``kept``; return what was removed."""
        self.flush()
        text, tokens = self.text, self.tokens
        self.text, self.tokens = "", []
        for held in tokens[:kept]:
            self.push(held.token, held.skip)  # the last of them may begin a character
        return Piece(text[len(self.text) :], [held.token for held in tokens[kept:]])

    def _add(self, text: str) -> None:
        """Append the text of the open tokens; a character that spans tokens counts as starting in the first."""
        self.text += text
        for held in self.tokens[len(self.tokens) - self._open :]:
            held.end = len(self.text)
        self._open = 0


def _lower(text: str) -> str:
    """Convert to lower case, character by character, so that indices stay the same."""
    if text.isascii():
        return text.lower()
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def _leftmost(text: str, strings: Sequence[str]) -> tuple[int, str] | None:
    """Return the start of the leftmost of ``strings`` in ``text``, and the longest string that starts there."""
    found = [(place, -len(string), string) for string in strings if (place := text.find(string)) >= 0]
    return (min(found)[0], min(found)[2]) if found else None


def _touches(text: str, strings: Sequence[str]) -> bool:
    """Return whether one of ``strings`` occurs in ``text``, or a proper prefix of it is a suffix of ``text``."""
    return any(string in text or _begins_at_end(text, string) for string in strings)


def _may_begin(text: str, strings: Sequence[str]) -> bool:
    """Return whether a proper prefix of one of ``strings`` is a suffix of ``text``."""
    return any(_begins_at_end(text, string) for string in strings)


def _begins_at_end(text: str, string: str) -> bool:
    """Return whether a proper prefix of ``string`` is a suffix of ``text``."""
    place = text.find(string[:1], max(0, len(text) - len(string) + 1))
    while 0 <= place < len(text):
        if string.startswith(text[place:]):
            return True
        place = text.find(string[:1], place + 1)
    return False
