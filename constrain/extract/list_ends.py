"""Lists that go on where their end is not much likelier than another item.

A model that writes the likeliest tokens ends a list as soon as that is likelier than another item. To ask that the end
be ``margin`` times as probable costs least where an item that was missed does as much harm as ``margin`` that were
invented, or where a model is that much too sure of the ends; compare :mod:`constrain.extract.doubt`. The record is
written once more from such an end on, with another item in its place. That item counts by the share of its values that
are likely to be right: the end stands if it is ``margin`` times as probable as the item times this share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from copy import copy
from dataclasses import replace
from statistics import mean
from typing import Any, Literal, NamedTuple

import torch

from constrain.completion import Completion, PendingResult, Rounds, submit
from constrain.completion.options import Options
from constrain.engine import CompiledGrammar, Vocabulary
from constrain.errors import BudgetError, ExtractionError, GenerationError
from constrain.extract.begun import BegunFilter
from constrain.extract.leaves import find_leaves
from constrain.extract.reader import RecordReader
from constrain.generator.settings import Settings
from constrain.runtime import Runtime
from constrain.runtime.confidence import TokenConfidence

#: Most items that a record gets in place of ends.
MAX_ITEMS = 32


class ListEnd(NamedTuple):
    """The end of a list in a record.

    Attributes:
        number: number of its token.
        item_token: the likeliest token that leads to another item.
        confidence: the probability of that token.
        depth: number of lists that are open before it.
        odds: how many times as probable as another item it is.
    """

    number: int
    item_token: int
    confidence: TokenConfidence
    depth: int
    odds: float


def with_more_items(
    runtime: Runtime, reader: RecordReader[Any], written: Completion, options: Options, margin: float
) -> Rounds[Completion]:
    """Write a record again from each end of a list that is less than ``margin`` times as probable as another item.

    An end stands where the item that is written instead is too unlikely, repeats an earlier one, leaves no place for
    the rest, or is refused by the type of the record.

    Args:
        runtime: the runtime to submit requests to.
        reader: reads the record.
        written: what the model wrote, with confidence.
        options: the options it was written with.
        margin: the factor.
    """
    standing: set[int] = set()
    for _ in range(MAX_ITEMS):
        end = doubtful_end(reader.grammar.vocabulary, written, margin, standing)
        if end is None:
            break
        other = yield from _with_item(runtime, reader.grammar, written, options, end)
        if other is not None and _is_better(reader, other, end, margin):
            written = other
        else:
            standing.add(end.number)
    return written


def doubtful_end(
    vocabulary: Vocabulary, written: Completion, margin: float, standing: Collection[int] = ()
) -> ListEnd | None:
    """Return the first end of a list with items that is less than ``margin`` times as probable as another item.

    Args:
        vocabulary: the vocabulary of the model.
        written: the record.
        margin: the factor.
        standing: numbers of tokens to pass over.
    """
    if written.confidence is None or len(written.confidence) != len(written.tokens):
        return None
    spell, place = vocabulary.token_bytes, _Place()
    for number, (token, confidence) in enumerate(zip(written.tokens, written.confidence, strict=True)):
        if number not in standing and place.leads_to(spell(token)) == "end":
            shares = confidence.choices(vocabulary.size)
            leads = {other: place.leads_to(spell(other)) for other in shares}
            ends = math.exp(confidence.logprob) + sum(
                share for other, share in shares.items() if leads[other] == "end" and other != token
            )
            items = {other: share for other, share in shares.items() if leads[other] == "item"}
            total = sum(items.values())
            if total and ends < margin * total:
                best = max(items, key=lambda other: items[other])
                changed = confidence._replace(logprob=math.log(items[best]))
                return ListEnd(number, best, changed, place.depth, ends / total)
        place.read(spell(token))
    return None


def _with_item(
    runtime: Runtime, grammar: CompiledGrammar, written: Completion, options: Options, end: ListEnd
) -> Rounds[Completion | None]:
    """Write the record again with another item in place of an end; ``None`` if that is not complete."""
    assert written.confidence is not None
    tokens = [*written.tokens[: end.number], end.item_token]
    if len(tokens) >= options.max_new_tokens:
        return None
    begun = BegunFilter(runtime, grammar, tokens)
    ids = torch.tensor([[*written.context, *tokens]])
    rest = replace(options, max_new_tokens=options.max_new_tokens - len(tokens), filters=[])
    try:
        pending: PendingResult[Completion] = submit(runtime, ids, [begun], rest, _same, Settings.greedy())
        (found,) = yield [pending]
    except (BudgetError, GenerationError):  # there is no place for another item
        return None
    if not found.complete or found.confidence is None:
        return None
    text = b"".join(map(grammar.vocabulary.token_bytes, [*tokens, *found.tokens])).decode("utf-8", "replace")
    return replace(
        written,
        text=text,
        tokens=[*tokens, *found.tokens],
        finish_reason=found.finish_reason,
        confidence=[*written.confidence[: end.number], end.confidence, *found.confidence],
    )


def _same(written: Completion) -> Completion:
    return written


def _is_better(reader: RecordReader[Any], written: Completion, end: ListEnd, margin: float) -> bool:
    """Whether a record with another item in place of an end is to be preferred."""
    spell = reader.grammar.vocabulary.token_bytes
    record, before = (b"".join(map(spell, tokens)) for tokens in (written.tokens, written.tokens[: end.number]))
    leaves = find_leaves(record)
    last = max((leaf for leaf in leaves if leaf.separator < len(before)), key=lambda leaf: leaf.start)
    indices = [at for at, step in enumerate(last.path) if isinstance(step, int)]
    *path, index = last.path[: indices[end.depth - 1] + 1]
    items: Any = json.loads(record)
    for step in path:
        items = items[step]
    added = int(index) + 1
    if items[added] in items[:added] or not _is_read(reader, written):
        return False
    starts = {leaf.start for leaf in leaves if leaf.path[: len(path) + 1] == (*path, added)}
    shares = [leaf.confidence.probability for leaf in reader.leaves(written) if leaf.start in starts]
    return end.odds < margin * mean(shares or [1.0])


def _is_read(reader: RecordReader[Any], written: Completion) -> bool:
    """Whether the type takes a record."""
    try:
        reader.target.read(written.text)
    except ExtractionError:
        return False
    return True


class _Place:
    """A place in a JSON text that is read from its beginning.

    Attributes:
        depth: number of lists that are open.
    """

    def __init__(self) -> None:
        self.depth = 0
        self._open: list[str] = []
        self._in_string = self._is_escaped = False
        self._last = ""

    def read(self, text: bytes) -> None:
        """Go on by a text."""
        for character in text.decode("latin-1"):
            self._step(character)

    def leads_to(self, text: bytes) -> Literal["end", "item"] | None:
        """Return whether a text ends the innermost list that is open, which has items, or leads to its next item."""
        if not self.depth or self._last == "[":
            return None
        ahead = copy(self)
        ahead._open = self._open.copy()
        for character in text.decode("latin-1"):
            outside = not ahead._in_string
            ahead._step(character)
            if ahead.depth < self.depth:
                return "end"
            if outside and character == "," and ahead.depth == self.depth and ahead._open[-1] == "[":
                return "item"
        return None

    def _step(self, character: str) -> None:
        if self._in_string:
            self._in_string = self._is_escaped or character != '"'
            self._is_escaped = character == "\\" and not self._is_escaped
        elif character == '"':
            self._in_string = True
        elif character in "[{":
            self._open.append(character)
            self.depth += character == "["
        elif character in "]}":
            self.depth -= self._open.pop() == "["
        if character != " ":
            self._last = character
