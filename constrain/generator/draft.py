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

    def __init__(
        self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, table: PageTable, width: int, least: float = 0.0
    ) -> None:
        """
        Args:
            model: the smaller model.
            cache, table: its cache, and who has which pages of it.
            width: number of logits of the model that it guesses for.
            least: it stops guessing where the most likely token is less likely than this.
        """
        self._least = least
        self._model = model
        self._cache = cache
        self._table = table
        self._width = width

    def prefill(self, rows: Sequence[PagedRow]) -> None:
        self._model.forward_paged(rows, self._cache)

    def propose(self, drafts: Sequence[Draft]) -> None:
        going = [draft for draft in drafts if draft.limit > 0]
        for draft in going:
            self._catch_up(draft.sequence)
        while going:
            logits = self._model.forward_paged([self._next_row(draft) for draft in going], self._cache)
            assert logits is not None
            rows = logits.float().cpu()
            going = [draft for draft, row in zip(going, rows, strict=True) if self._extend(draft, row)]

    def _catch_up(self, sequence: JobSequence) -> None:
        """Take what the draft model has missed of a text through it, until the rest fits into one pass."""
        limit = self._model.config.max_input_len
        while len(sequence.sequence_ids) - sequence.draft_position > limit:
            ids = sequence.tokens(sequence.draft_position)[:limit]
            self._model.forward_paged([self._row(sequence, ids, logits=0)], self._cache)

    def _next_row(self, draft: Draft) -> PagedRow:
        ids = draft.tokens[-1:] or draft.sequence.tokens(draft.sequence.draft_position)
        return self._row(draft.sequence, ids, logits=1)

    def _row(self, sequence: JobSequence, ids: list[int], logits: int) -> PagedRow:
        pages = [page.index for page in sequence.pages]
        row = PagedRow(torch.tensor(ids), sequence.draft_position, pages, self._table.page_size, logits)
        sequence.draft_position += len(ids)
        return row

    def _extend(self, draft: Draft, row: torch.Tensor) -> bool:
        """Add a token to a guess; returns whether it may become longer."""
        logits = torch.full((self._width,), -torch.inf)
        shared = min(self._width, len(row))
        logits[:shared] = row[:shared]
        if draft.scout is not None and not draft.scout.apply(logits):
            return False
        token = int(logits.argmax())
        if self._least > 0 and float(torch.softmax(logits, dim=0)[token]) < self._least:
            return False
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

    @property
    def tail(self) -> list[int]:
        """The end of the text, as long as a run."""
        return self._tokens[max(0, len(self._tokens) - self._longest) :]

    def predict(self, count: int, tail: Sequence[int] | None = None) -> list[int]:
        """What followed the longest run that ends the text, or ``tail``, before: at most ``count`` tokens of it."""
        text, end = self._tokens, self.tail if tail is None else tail
        for start in range(len(end)):
            place = self._following.get(tuple(end[start:]), len(text))
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
        self._preloaded = NgramIndex(longest)
        self._indexes: WeakKeyDictionary[JobSequence, NgramIndex] = WeakKeyDictionary()

    def preload(self, tokens: Sequence[int]) -> None:
        """Guess by this text where a sequence itself does not help."""
        self._preloaded = NgramIndex(self._longest)
        self._preloaded.extend(tokens)

    def prefill(self, rows: Sequence[PagedRow]) -> None:
        """Nothing to do: the sequences hold their prompts."""

    def propose(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            index = self._indexes.setdefault(draft.sequence, NgramIndex(self._longest))
            index.truncate(len(draft.sequence.sequence_ids))
            index.extend(draft.sequence.tokens(len(index)))
            draft.tokens += index.predict(draft.limit) or self._preloaded.predict(draft.limit, index.tail)
