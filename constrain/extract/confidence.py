"""The confidence of the values of a record, from the probabilities of its tokens."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from constrain.completion import Completion
from constrain.engine import CompiledGrammar, Matcher, Vocabulary
from constrain.engine.alternatives import Alternatives, goes_on
from constrain.engine.bitmask import packed
from constrain.engine.pointers import pointer
from constrain.extract.distribution import Distribution
from constrain.extract.evidence import Path
from constrain.extract.extraction import Confidence
from constrain.extract.leaves import Leaf, find_leaves, marked
from constrain.extract.target import Target
from constrain.filters.masks import RowMask, TokenMask
from constrain.filters.vocabularies import vocabulary_of
from constrain.runtime.confidence import TokenConfidence, removed_share
from constrain.tokenizer import ExLlamaV2Tokenizer

#: Tokens with which ``null`` may begin, with what may stand before it.
_BEFORE_NULL = re.compile(rb'"?[\[,:]? ?(n|nu|nul|null[^\w]*)?')
#: Tokens that may end a list or lead to its next item, with what ends an item before it.
_AFTER_ITEM = re.compile(rb'"?\}*[\],] ?[\]},]*:? ?[\["{]*')
#: Maximum number of alternatives of a value.
MAX_ALTERNATIVES = 64
#: Maximum number of places of a target whose alternatives are cached.
_MAX_PLACES = 4096

#: Names of an object and ``None`` for any index, the gap, and the mask before it.
_Place: TypeAlias = "tuple[tuple[str | None, ...], bytes, Any]"


@dataclass(frozen=True)
class LeafConfidence:
    """The confidence of a leaf of a record.

    Attributes:
        pointer: its JSON pointer in the record.
        text: its JSON text.
        start, end: its bytes in the record as it was written.
        first: number of its first token.
        probability, removed: see :class:`~constrain.extract.Confidence`.
        distribution: the distribution over its alternatives, if they are known.
    """

    pointer: str
    text: str
    start: int
    end: int
    first: int
    probability: float
    removed: float
    distribution: Distribution | None

    @cached_property
    def confidence(self) -> Confidence:
        """The confidence, without calibration."""
        alternatives = None if self.distribution is None else self.distribution.probabilities()
        if self.distribution is None or alternatives is None:
            return Confidence(self.probability, self.removed)
        text = self.distribution.alternatives.main_text(self.text.encode()).decode()
        return Confidence(alternatives.get(text, self.probability), self.removed, alternatives)


class ConfidenceReader:
    """Computes the confidence of the values of records.

    The tokens of a value are those that overlap it or the colon, comma or bracket before it, since a token that begins
    with these may decide what kind of value follows.
    """

    def __init__(self, tokenizer: ExLlamaV2Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._alternatives: WeakKeyDictionary[Target[Any], dict[_Place, Alternatives | None]] = WeakKeyDictionary()

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return vocabulary_of(self._tokenizer)

    @cached_property
    def watched_tokens(self) -> TokenMask:
        """The tokens with which ``null`` may begin, and those that may follow on an item of a list."""
        size, spell = self._vocabulary.size, self._vocabulary.token_bytes
        found = [
            token
            for token in range(size)
            if (text := spell(token)) and (_BEFORE_NULL.fullmatch(text) or _AFTER_ITEM.fullmatch(text))
        ]
        return RowMask(packed(found, (size + 31) // 32))

    def read(self, target: Target[Any], grammar: CompiledGrammar, written: Completion) -> list[LeafConfidence]:
        """Return the confidence of the leaves of a record, in order; nothing if that of a token is not known.

        Args:
            target: the target of the record.
            grammar: the grammar that the record was written with.
            written: what the model wrote.
        """
        if written.confidence is None or len(written.confidence) != len(written.tokens):
            return []
        text = _WrittenText(self._vocabulary, written.tokens, written.confidence)
        return [
            self._leaf(target, grammar, text, leaf, pointer(path), is_quote)
            for leaf, path, is_quote in _placed(target, text.record)
        ]

    def _leaf(
        self, target: Target[Any], grammar: CompiledGrammar, text: _WrittenText, leaf: Leaf, where: str, is_quote: bool
    ) -> LeafConfidence:
        first, last = text.token_at(leaf.separator), text.token_at(leaf.end - 1)
        used = text.confidence[first : last + 1]
        logprob = sum([each.logprob for each in used])
        if leaf.is_number:
            logprob += text.end_logprob(leaf.end)
        removed = removed_share(min([each.log_mass for each in used]))
        distribution = None
        if not is_quote:
            distribution = self._distribution(target, grammar, text, leaf, first)
        written = leaf.text.decode()
        return LeafConfidence(where, written, leaf.start, leaf.end, first, math.exp(logprob), removed, distribution)

    def _distribution(
        self, target: Target[Any], grammar: CompiledGrammar, text: _WrittenText, leaf: Leaf, first: int
    ) -> Distribution | None:
        """Return the distribution over the alternatives of a leaf, as far as its tokens tell."""
        gap = text.record[text.starts[first] : leaf.start]
        mask = text.confidence[first].mask
        names = tuple(step if isinstance(step, str) else None for step in leaf.path)
        place = names, gap, None if mask is None else mask.id
        places = self._alternatives.setdefault(target, {})
        if place not in places:
            if len(places) == _MAX_PLACES:
                places.clear()
            places[place] = text.matcher_before(grammar, first).alternatives(MAX_ALTERNATIVES, gap, True)
        alternatives = places[place]
        if alternatives is None:
            return None
        distribution = Distribution(alternatives, self._vocabulary.token_bytes, self._vocabulary.size)
        is_known = distribution.follow(text.tokens[first:], text.confidence[first:])
        return distribution if is_known else None


class _WrittenText:
    """The tokens of a record, with their bytes."""

    def __init__(self, vocabulary: Vocabulary, tokens: Sequence[int], confidence: Sequence[TokenConfidence]) -> None:
        self.tokens, self.confidence = tokens, confidence
        self._pieces = list(map(vocabulary.core.bytes, tokens))
        self.record = b"".join(self._pieces)
        self.starts = list(accumulate(map(len, self._pieces), initial=0))
        self._vocabulary = vocabulary

    def token_at(self, place: int) -> int:
        """Return the number of the token that has a byte of the record."""
        return bisect_right(self.starts, place) - 1

    def end_logprob(self, place: int) -> float:
        """Return the log probability that a number ends at a place of the record."""
        number = bisect_left(self.starts, place)
        if number >= len(self.tokens) or self.starts[number] != place:
            return 0.0  # the token that ends the number also has what follows it
        confidence = self.confidence[number]
        if not confidence.lists_all:
            return confidence.logprob
        spell = self._vocabulary.token_bytes
        shares = confidence.choices(self._vocabulary.size).items()
        return math.log(min(1.0, sum(share for token, share in shares if not goes_on(spell(token)))))

    def matcher_before(self, grammar: CompiledGrammar, number: int) -> Matcher:
        """Return a matcher that has accepted the tokens before one."""
        matcher = grammar.matcher()
        for token in self.tokens[:number]:
            matcher.accept(token)
        return matcher


def _placed(target: Target[Any], record: bytes) -> Iterator[tuple[Leaf, Path, bool]]:
    """Yield the leaves of a written record, the path of each in the unpacked record, and whether it is a quote."""
    leaves = find_leaves(record)
    if not target.has_quotes:
        yield from ((leaf, leaf.path, False) for leaf in leaves)
        return
    whole = json.loads(record)
    unpacked, quotations = target.without_quotes(marked(leaves, whole), whole)
    quotes = {quotation.text for quotation in quotations}
    for path, mark in _scalars(unpacked, ()):
        yield leaves[int(mark)], path, mark in quotes


def _scalars(node: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the scalars of a record, with their paths."""
    if isinstance(node, dict):
        for name, child in node.items():
            yield from _scalars(child, (*path, name))
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from _scalars(child, (*path, index))
    else:
        yield path, node
