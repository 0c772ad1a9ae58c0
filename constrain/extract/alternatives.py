"""The alternatives of a value: the texts, if they are few, that a grammar allows in its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from constrain.engine import Matcher, Vocabulary
from constrain.extract.extraction import PRESENT
from constrain.filters.masks import all_tokens
from constrain.kernels import MAX_CHOICES

#: Maximum number of alternatives.
MAX_ALTERNATIVES = 64

_NULL = b"null"
_NUMBER = rb"0-9.eE+-"
#: A whole scalar at the beginning of a text. A number ends where another character follows.
_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"|true|false|null|-?[0-9][%b]*(?=[^%b])' % (_NUMBER, _NUMBER), re.DOTALL)
#: What may stand in place of a value: the end of a list, or more white space before the value.
_NO_VALUE = re.compile(rb"[\]\s]")
_NUMBER_GOES_ON = re.compile(rb"[%b]" % _NUMBER)


def goes_on(text: bytes) -> bool:
    """Whether a number that is followed by a text is not complete before it."""
    return _NUMBER_GOES_ON.match(text) is not None


@dataclass(frozen=True)
class Alternatives:
    """What may be written in a place.

    Attributes:
        gap: what stands before each, such as ``": "``.
        texts: the JSON texts; ``null`` alone if all others are one alternative.
        has_others: whether all others are one alternative, the last.
    """

    gap: bytes
    texts: tuple[bytes, ...]
    has_others: bool = False

    @property
    def names(self) -> list[str]:
        """The JSON texts, and the name of all others."""
        return [text.decode() for text in self.texts] + [PRESENT] * self.has_others

    def remaining(self, written: bytes) -> tuple[int, ...]:
        """Return the numbers of the alternatives that are possible after a text, which begins with the gap's."""
        found = tuple(number for number, whole in enumerate(self._wholes) if self._may_be(written, whole))
        if not self.has_others:
            return found
        return (*found, len(self.texts)) if not found or self.gap.startswith(written) else found

    @cached_property
    def _wholes(self) -> list[bytes]:
        return [self.gap + text for text in self.texts]

    def _may_be(self, written: bytes, whole: bytes) -> bool:
        if len(written) <= len(whole):
            return whole.startswith(written)
        is_number = whole[len(self.gap) : len(self.gap) + 1] in b"-0123456789"
        return written.startswith(whole) and not (is_number and goes_on(written[len(whole) :]))


def find_alternatives(matcher: Matcher, vocabulary: Vocabulary, gap: bytes) -> Alternatives | None:
    """Find what may be written in a place; ``None`` if that is more than :data:`MAX_ALTERNATIVES`, and not ``null``.

    Args:
        matcher: stands before the gap; its state does not change.
        vocabulary: its vocabulary.
        gap: what stands before the value.
    """
    matcher = matcher.clone()
    if not matcher.accept_bytes(gap):
        return None
    texts = _scalars(matcher, vocabulary)
    if texts:
        return Alternatives(gap, texts)
    return Alternatives(gap, (_NULL,), has_others=True) if matcher.accept_bytes(_NULL) else None


def _scalars(matcher: Matcher, vocabulary: Vocabulary) -> tuple[bytes, ...]:
    """Return the JSON texts of the values that may come next; nothing if they are too many, or lists or objects."""
    found: dict[bytes, None] = {}
    beginnings = [b""]
    while beginnings:
        if len(found) + len(beginnings) > MAX_ALTERNATIVES:
            return ()
        here, text = matcher.clone(), beginnings.pop()
        here.accept_bytes(text)
        forced = here.forced_bytes()
        here.accept_bytes(forced)
        text += forced
        scalar = _SCALAR.match(text)
        if scalar is not None:
            found[scalar[0]] = None
            continue
        if _NO_VALUE.match(text):
            continue
        following = _next_bytes(here, vocabulary)
        if following is None or text[:1] in (b"{", b"["):
            return ()
        if here.is_accepting():
            found[text] = None
        beginnings += [text + byte for byte in following]
    return tuple(found)


def _next_bytes(matcher: Matcher, vocabulary: Vocabulary) -> set[bytes] | None:
    """Return the bytes that may come next; ``None`` if too many tokens may."""
    mask = matcher.mask()
    if mask is None or mask.count > MAX_CHOICES:
        return None
    return {vocabulary.token_bytes(token)[:1] for token in all_tokens(mask, vocabulary.size).tolist()} - {b""}
