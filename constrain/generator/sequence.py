"""A sequence of a job: its tokens, and the pages that their keys and values are in."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from constrain.generator.pages import CachePage, PageTable
from constrain.model import SeqTensor
from constrain.model.paged import PagedRow

# Generated tokens are listed so many at a time, since each time costs as much as a token; but for sequences that have
# started together not in the same step, since the next would have to wait.
_LISTED = 16


class JobSequence:
    """Tokens and pages.

    Attributes:
        input_ids: the prompt, int64 of shape (1, n).
        sequence_ids: the prompt, without a token that is to be generated anew, and what was generated.
        pages: those that it has while it runs.
        position: number of positions whose keys and values are there.
        draft_position: the same in the cache of a draft model.
        cached_pages, cached_tokens: how much of the prompt did not have to be computed.
        copied: whether some of that came from a page that it does not have itself.
    """

    def __init__(self, input_ids: torch.Tensor) -> None:
        self.input_ids = SeqTensor.from_tensor(input_ids, seq_dim=-1)
        self.sequence_ids = SeqTensor.from_tensor(input_ids, seq_dim=-1)
        self.pages: list[CachePage] = []
        self.position = self.draft_position = 0
        self.cached_pages = self.cached_tokens = 0
        self.copied = False
        self._committed = self._final = 0
        self._listed_next = _LISTED
        self._prompt_end = 0

    @property
    def prompt_end(self) -> int:
        """Number of positions to be computed before the first token can be drawn."""
        return self._prompt_end

    @property
    def ready(self) -> bool:
        """Whether the prompt is done."""
        return self.position >= self._prompt_end

    def tokens(self, start: int = 0) -> list[int]:
        """The tokens from ``start`` on."""
        ids: list[int] = self.sequence_ids.torch_slice(start, None)[0].tolist()
        return ids

    def start(self, table: PageTable, max_new_tokens: int) -> bool:
        """Take pages for the prompt and ``max_new_tokens`` more; returns false where there are not enough."""
        prompt = self.tokens()
        pages = table.allocate(prompt, len(prompt) + max_new_tokens)
        if pages is None:
            return False
        self.pages, self._prompt_end = pages, len(prompt) - 1
        self._listed_next = 1 + pages[-1].index % _LISTED
        return True

    def stop(self, table: PageTable) -> None:
        """Give the pages back."""
        self._commit(table)
        table.release(self.pages)
        self.pages = []

    def skip_cached(self, table: PageTable) -> int:
        """Pass over what its pages hold already, whoever put it there; return how many tokens that is."""
        before = self.position
        while not self.ready:
            number = self.position // table.page_size
            page = self.pages[number]
            end = min(number * table.page_size + len(page.tokens), self._prompt_end)
            if end <= self.position:
                break
            whole = end - self.position == table.page_size
            self.cached_pages += int(whole)
            self.copied |= not whole
            self.position = end
        self._committed = self._final = self.draft_position = self.position
        self.cached_tokens += self.position - before
        return self.position - before

    def prompt_chunk(self, table: PageTable, limit: int) -> PagedRow | None:
        """The next part of the prompt, ``limit`` tokens at most, up to the end of a page or of the prompt."""
        size, end = table.page_size, min(self._prompt_end, self.position + limit)
        if end < self._prompt_end and end // size * size > self.position:
            end = end // size * size
        for number in range(self.position // size + 1, end // size):
            if self.pages[number].tokens:
                end = number * size
                break
        if end <= self.position:
            return None
        return self._row(self.sequence_ids.torch_slice(self.position, end)[0], table, 0)

    def row(self, table: PageTable, proposals: Sequence[int]) -> PagedRow:
        """Its last token, and tokens that may follow, with the logits behind each."""
        ids = torch.cat([self.sequence_ids.torch()[0, -1:], torch.tensor(proposals, dtype=torch.long)])
        return self._row(ids, table, len(ids))

    def computed(self, table: PageTable, end: int, final: int) -> None:
        """Note that keys and values up to ``end`` are there, and those up to ``final`` will not change."""
        self.position = end
        self.draft_position = min(self.draft_position, end)
        self._final = min(end, final)
        if self._final <= self._prompt_end:
            self._commit(table)
        elif self._final - self._committed >= self._listed_next:
            self._commit(table)
            self._listed_next = _LISTED

    def _commit(self, table: PageTable) -> None:
        if self._final > self._committed:
            table.commit(self.pages, self.tokens(self._committed)[: self._final - self._committed], self._committed)
            self._committed = self._final

    def _row(self, ids: torch.Tensor, table: PageTable, logits: int) -> PagedRow:
        return PagedRow(ids, self.position, [page.index for page in self.pages], table.page_size, logits)
