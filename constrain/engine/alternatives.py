"""Alternatives at a point of a text: the few continuations that a grammar allows, and the tokens that tell them apart.

Where an enum, a boolean or a choice is written, the model decides between few texts, but it can write each of them in
many ways: in as many as there are ways to cut it into tokens. The probability of a text is the sum over all of them.
Most need not be looked at: after a token that only one text can begin with, the constraint allows nothing but the rest
of that text, so that its probability is known. What remains is a small prefix tree of tokens::

    "on", "one", "off"        o -> n, f        on -> e, end        off: decided
                              of: decided      one: decided
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from constrain._core import Mask, Matcher, Vocabulary
from constrain.arguments import check_count, check_type
from constrain.engine.bitmask import set_bits
from constrain.errors import BitmaskError, ResourceLimit

#: Largest limit: in an endless language, as many texts are looked at, which may each be as long.
_MOST_TEXTS = 4096
#: Begins and ends the name of a special token in the bytes of a text.
_SPECIAL = b"\xff"
_BYTES = [bytes([byte]) for byte in range(256)]
_NULL = b"null"
_DIGITS = b"-0123456789"
_NUMBER = rb"0-9.eE+-"
#: A whole scalar at the beginning of a text. A number ends where another character follows.
_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"|true|false|null|-?[0-9][%b]*(?=[^%b])' % (_NUMBER, _NUMBER), re.DOTALL)
#: Beginnings of text that is no value: the end of a list, or more white space before the value.
_NO_VALUE = re.compile(rb"[\]\s]")
_NUMBER_GOES_ON = re.compile(rb"[%b]" % _NUMBER)
#: An integer that may be written with a fraction, and this fraction.
_INTEGER = re.compile(rb"(-?[0-9]+)(\.0)?")


def goes_on(text: bytes) -> bool:
    """Whether a number that is followed by a text is not complete before it."""
    return _NUMBER_GOES_ON.match(text) is not None


@dataclass(frozen=True)
class Alternatives:
    """Texts that may be written next.

    Attributes:
        gap: text before each of them, such as ``": "``.
        texts: the texts, as bytes; ``null`` alone if all others are one alternative.
        has_others: whether all other texts are one alternative, the last.
        json_value: whether the texts are JSON values, after which the document goes on, and not the rest of a text.
        drops_space: whether the decoder drops a space before them.
        synonyms: other texts with the value of one, such as ``1.0`` for ``1``, each with its number.
    """

    gap: bytes
    texts: tuple[bytes, ...]
    has_others: bool = False
    json_value: bool = False
    drops_space: bool = False
    synonyms: tuple[tuple[bytes, int], ...] = ()

    def __len__(self) -> int:
        return len(self.texts) + self.has_others

    def main_text(self, text: bytes) -> bytes:
        """Return the text of the alternative that has a synonym; other texts as they are."""
        return next((self.texts[number] for other, number in self.synonyms if other == text), text)

    def remaining(self, written: bytes, is_end: bool = False) -> tuple[int, ...]:
        """Return the numbers of the alternatives that are possible after a text, which begins with the gap's.

        Args:
            written: the text.
            is_end: whether an end-of-sequence token follows it.
        """
        if is_end:
            return tuple({number for whole, number in self._wholes if whole == written})
        found = tuple(dict.fromkeys(number for whole, number in self._wholes if self._may_be(written, whole, number)))
        if not self.has_others:
            return found
        return (*found, len(self.texts)) if not found or self.gap.startswith(written) else found

    def tree(self, matcher: Matcher, limit: int = 4096) -> TokenTree:
        """Return the prefix tree of the tokens of all texts, in all tokenizations.

        Args:
            matcher: has accepted the text before; its state does not change.
            limit: maximum number of nodes.

        Raises:
            ResourceLimit: there are more nodes, as texts that begin alike at length can have.
        """
        vocabulary = matcher.vocabulary
        nodes, matchers = [TokenNode((), b"", matcher.mask())], [matcher]
        for number, node in enumerate(nodes):  # grows
            for token in self._tokens(node, vocabulary):
                text = node.text + vocabulary.bytes(token)
                after = self.remaining(text, is_end=token in vocabulary.eos)
                if len(after) == 1:
                    node.decided[token] = after[0]
                elif after:
                    node.undecided[token] = len(nodes)
                    matchers.append(_after(matchers[number], token))
                    nodes.append(TokenNode((*node.tokens, token), text, matchers[-1].mask()))
            if len(nodes) > limit:
                raise ResourceLimit("limit", limit, "for the nodes of a prefix tree of tokens")
        return TokenTree(tuple(nodes), len(self), self.has_others)

    @cached_property
    def _wholes(self) -> list[tuple[bytes, int]]:
        """The ways to write each alternative, with its number: the decoder may drop a space at the start."""
        spaces = (b"", b" ") if self.drops_space else (b"",)
        texts = [(text, number) for number, text in enumerate(self.texts)] + [*self.synonyms]
        return [(space + self.gap + text, number) for text, number in texts for space in spaces]

    def _may_be(self, written: bytes, whole: bytes, number: int) -> bool:
        if len(written) <= len(whole):
            return whole.startswith(written)
        is_number = self.texts[number][:1] in _DIGITS
        return self.json_value and written.startswith(whole) and not (is_number and goes_on(written[len(whole) :]))

    def _tokens(self, node: TokenNode, vocabulary: Vocabulary) -> list[int]:
        """Return the allowed tokens of a node that may begin one of the texts."""
        tokens: list[int] = np.flatnonzero(_flags(node.mask, vocabulary.size)).tolist()
        if not self.has_others:
            return tokens
        begins = {whole[len(node.text) : len(node.text) + 1] for whole, _ in self._wholes}
        return [token for token in tokens if vocabulary.bytes(token)[:1] in begins]


@dataclass(frozen=True)
class TokenNode:
    """A beginning of a place after which several alternatives are possible.

    Attributes:
        tokens: its tokens.
        text: their bytes.
        mask: the tokens that may follow; ``None`` for all.
        decided: tokens after which one alternative is left, with its number.
        undecided: tokens after which several are left, with the number of their node.
    """

    tokens: tuple[int, ...]
    text: bytes
    mask: Mask | None = field(repr=False)
    decided: dict[int, int] = field(default_factory=dict)
    undecided: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenTree:
    """The prefix tree of the tokens of alternatives, as far as it takes to tell them apart.

    Attributes:
        nodes: the inner nodes; each comes after its parent.
        num_alternatives: number of alternatives.
        has_others: whether the last alternative is all texts that are not in the tree.
    """

    nodes: tuple[TokenNode, ...]
    num_alternatives: int
    has_others: bool

    @property
    def prefixes(self) -> list[tuple[int, ...]]:
        """The tokens of each node: what to append to the prompt for a row of ``logits`` in :meth:`probabilities`."""
        return [node.tokens for node in self.nodes]

    def probabilities(self, logits: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the probabilities of the alternatives under the constraint, which sum to one.

        Args:
            logits: ``[nodes, width]``, logits of the token after each prefix; those that are not finite count as -inf.

        Raises:
            BitmaskError: the logits have another shape.
        """
        rows = np.asarray(logits, dtype=np.float64)
        if rows.ndim != 2 or len(rows) != len(self.nodes):
            raise BitmaskError(f"{len(self.nodes)} rows of logits are needed, not an array of shape {rows.shape}")
        masses, reached = np.zeros(self.num_alternatives), np.zeros(len(self.nodes))
        reached[0] = 1.0
        for number, (node, row) in enumerate(zip(self.nodes, rows, strict=True)):
            shares = reached[number] * _shares(row, node.mask)
            np.add.at(masses, list(node.decided.values()), shares[list(node.decided)])
            reached[list(node.undecided.values())] = shares[list(node.undecided)]
            if self.has_others:
                shares[[*node.decided, *node.undecided]] = 0.0
                masses[-1] += shares.sum()
        masses /= masses.sum()
        return masses


def find_alternatives(matcher: Matcher, limit: int, gap: bytes, json_value: bool) -> Alternatives | None:
    """Find the texts that may be written next; see :meth:`Matcher.alternatives`.

    Args:
        matcher: has accepted the text before; its state does not change.
        limit: maximum number of texts.
        gap: text before each of them.
        json_value: whether they are JSON values, and not the rest of the text. If values are too many, but ``null`` is
            one of them, all others are one alternative.

    Returns:
        The alternatives; ``None`` if they are more than ``limit``, or if a special token, a list, an object or
        nothing may come next.

    Raises:
        ArgumentError: ``limit`` is less than 1, or more than 4096, or an argument is of the wrong type.
    """
    check_count("limit", limit, 1, _MOST_TEXTS)
    check_type("gap", gap, bytes, "bytes")
    here = matcher.clone()
    if not here.accept_bytes(gap):
        return None
    values = _texts(here, limit, json_value)
    if values:
        texts = tuple(spellings[0] for spellings in values)
        synonyms = tuple((text, number) for number, spellings in enumerate(values) for text in spellings[1:])
        drops_space = matcher.vocabulary.first_space_optional and matcher.accepted_tokens == 0 and not gap
        if drops_space:
            texts = tuple(dict.fromkeys(text.removeprefix(b" ") for text in texts))
        return Alternatives(gap, texts, False, json_value, drops_space, synonyms)
    if json_value and here.accept_bytes(_NULL):
        return Alternatives(gap, (_NULL,), has_others=True, json_value=True)
    return None


def _texts(matcher: Matcher, limit: int, json_value: bool) -> list[list[bytes]]:
    """Return the texts that may come next, the shortest first of those with one JSON value.

    Nothing is returned if they are too many, or more than a scalar.
    """
    found: dict[bytes, list[bytes]] = {}
    beginnings = [(b"", matcher)]
    while beginnings:
        if len(found) + len(beginnings) > limit:
            return []
        text, here = beginnings.pop()
        here = here.clone()
        forced = here.forced_bytes()
        here.accept_bytes(forced)
        text += forced
        scalar = _SCALAR.match(text) if json_value else None
        if scalar is not None:
            _add_spelling(found, scalar[0])
        elif json_value and _NO_VALUE.match(text):
            continue
        elif (json_value and text[:1] in (b"{", b"[")) or here.clone().accept_bytes(_SPECIAL):
            return []
        else:
            if here.is_accepting() and json_value:  # a number that is the whole document
                _add_spelling(found, text)
            elif here.is_accepting():
                found[text] = [text]
            beginnings += islice(_longer(text, here), limit + 1)
    return [sorted(spellings, key=len) for spellings in found.values()]


def _add_spelling(found: dict[bytes, list[bytes]], scalar: bytes) -> None:
    integer = _INTEGER.fullmatch(scalar)
    spellings = found.setdefault(integer[1] if integer else scalar, [])
    if scalar not in spellings:
        spellings.append(scalar)


def _longer(text: bytes, matcher: Matcher) -> Iterator[tuple[bytes, Matcher]]:
    """Yield a text with each byte that may follow it, and the matchers after them."""
    ahead = matcher.clone()
    for byte in _BYTES[:-1]:
        if ahead.accept_bytes(byte):
            yield text + byte, ahead
            ahead = matcher.clone()


def _after(matcher: Matcher, token: int) -> Matcher:
    ahead = matcher.clone()
    ahead.accept(token)
    return ahead


def _flags(mask: Mask | None, width: int) -> npt.NDArray[np.bool_]:
    return np.ones(width, dtype=np.bool_) if mask is None else set_bits(mask, width)


def _shares(logits: npt.NDArray[np.float64], mask: Mask | None) -> npt.NDArray[np.float64]:
    """Return the probabilities of tokens among those that a mask allows."""
    allowed = np.where(_flags(mask, len(logits)) & np.isfinite(logits), logits, -np.inf)
    shares: npt.NDArray[np.float64] = np.exp(allowed - allowed.max())
    shares /= shares.sum()
    return shares
