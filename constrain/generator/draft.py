"""Guesses of the next tokens, which the model then checks all at once.

Whoever guesses, a token counts only if it is the one that is drawn in its place: drafts change how fast a text comes,
not the text (Leviathan et al. 2023, with agreement in place of rejection sampling).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import torch

from constrain.filters.stack import Scout
from constrain.generator.pages import PageTable
from constrain.generator.sequence import JobSequence
from constrain.model.paged import PagedRow

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2, ExLlamaV2CacheBase


@dataclass
class Draft:
    """A guess.

    Attributes:
        sequence: what it is to follow.
        limit: most tokens that it may have.
        scout: what the filters allow, where there are any.
        tokens: the guess, empty at first.
    """

    sequence: JobSequence
    limit: int
    scout: Scout | None
    tokens: list[int]


class Drafter(Protocol):
    """Something that guesses."""

    def prefill(self, rows: Sequence[PagedRow]) -> None:
        """Hear of parts of prompts that went through the model."""

    def propose(self, drafts: Sequence[Draft]) -> None:
        """Fill in the tokens."""


class ModelDrafter:
    """Guesses what a smaller model finds most likely among what the filters allow."""

    def __init__(self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, table: PageTable, width: int) -> None:
        """``width``: number of logits of the model that it guesses for."""
        self._model = model
        self._cache = cache
        self._table = table
        self._width = width

    def prefill(self, rows: Sequence[PagedRow]) -> None:
        self._model.forward_paged(rows, self._cache)

    def propose(self, drafts: Sequence[Draft]) -> None:
        going = [draft for draft in drafts if draft.limit > 0]
        while going:
            logits = self._model.forward_paged([self._row(draft) for draft in going], self._cache)
            assert logits is not None
            rows = logits.float().cpu()
            going = [draft for draft, row in zip(going, rows, strict=True) if self._extend(draft, row)]

    def _row(self, draft: Draft) -> PagedRow:
        sequence, past = draft.sequence, draft.sequence.draft_position
        ids = draft.tokens[-1:] or sequence.tokens(past)
        sequence.draft_position += len(ids)
        return PagedRow(torch.tensor(ids), past, [page.index for page in sequence.pages], self._table.page_size, 1)

    def _extend(self, draft: Draft, row: torch.Tensor) -> bool:
        """Add a token to a guess; returns whether it may become longer."""
        logits = torch.full((self._width,), -torch.inf)
        shared = min(self._width, len(row))
        logits[:shared] = row[:shared]
        if draft.scout is not None and not draft.scout.apply(logits):
            return False
        token = int(logits.argmax())
        draft.tokens.append(token)
        if draft.scout is not None:
            draft.scout.feed(token)
        return len(draft.tokens) < draft.limit


class NgramIndex:
    """Where in a text each run of a few tokens occurred last.

    Args:
        longest: most tokens in a run.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._tokens: list[int] = []
        self._following: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def truncate(self, length: int) -> None:
        """Forget the text from ``length`` on."""
        del self._tokens[length:]

    def extend(self, tokens: Sequence[int]) -> None:
        """Go on with the text."""
        text = self._tokens
        for token in tokens:
            end = len(text)
            for count in range(1, min(self._longest, end) + 1):
                self._following[tuple(text[end - count :])] = end
            text.append(token)

    def predict(self, count: int) -> list[int]:
        """What followed, at most ``count`` tokens of it, when the longest run that ends the text occurred before."""
        text = self._tokens
        for length in range(min(self._longest, len(text)), 0, -1):
            place = self._following.get(tuple(text[len(text) - length :]), len(text))
            if place < len(text):
                return text[place : place + count]
        return []


class NgramDrafter:
    """Guesses that what followed the last few tokens before will follow them again.

    Args:
        longest: most tokens that are compared.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._indexes: WeakKeyDictionary[JobSequence, NgramIndex] = WeakKeyDictionary()

    def prefill(self, rows: Sequence[PagedRow]) -> None:
        """Nothing to do: the sequences hold their prompts."""

    def propose(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            index = self._indexes.setdefault(draft.sequence, NgramIndex(self._longest))
            index.truncate(len(draft.sequence.sequence_ids))
            index.extend(draft.sequence.tokens(len(index)))
            draft.tokens += index.predict(draft.limit)
