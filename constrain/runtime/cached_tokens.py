"""Tokens of a sequence, and the pages that hold their keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property

import torch

from constrain.model import SeqTensor
from constrain.model.prompt_images import NO_IMAGES, whole_end
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.page_allocator import KVPage, PageAllocator, pages_of

# Generated tokens are committed to pages in groups of this size, since one commit costs as much as a token. Sequences
# that started together commit in different steps, so that their commits do not all delay the same step.
_COMMIT_INTERVAL = 16


class CachedTokens:
    """Tokens of one sequence, and its pages.

    Attributes:
        prompt_length: number of tokens of the prompt.
        sequence_ids: the prompt, without a token to regenerate (token healing), and the generated tokens.
        pages: pages from the allocator, while the sequence runs.
        block_table: indices of its pages, in order.
        prompt_end: number of positions to compute before the first token can be sampled.
        position: number of positions whose keys and values are cached.
        draft_position: number of positions that are cached for a draft model.
        cached_pages, cached_tokens: number of full pages and of tokens of the prompt that were cache hits.
        copied: whether some of these tokens came from a page of another sequence.
        images: the images of the prompt.
    """

    def __init__(self, input_ids: torch.Tensor) -> None:
        self._input_ids, self.prompt_length = input_ids, input_ids.shape[-1]
        self.sequence_ids = SeqTensor.from_tensor(input_ids, seq_dim=-1)
        self.pages: list[KVPage] = []
        self.block_table: Sequence[int] = ()
        self.position = self.draft_position = 0
        self.cached_pages = self.cached_tokens = 0
        self.copied = False
        self.images = NO_IMAGES
        self._committed = self._final = 0
        self._commit_after = _COMMIT_INTERVAL
        self.prompt_end = 0
        self._allocator: PageAllocator | None = None

    @cached_property
    def input_ids(self) -> SeqTensor:
        """The prompt, int64 of shape (1, n)."""
        return SeqTensor.from_tensor(self._input_ids, seq_dim=-1)

    @property
    def is_prefilled(self) -> bool:
        """Whether the whole prompt is cached, except for its last token."""
        return self.position >= self.prompt_end

    def tokens(self, start: int = 0) -> list[int]:
        """Return the tokens from ``start`` on."""
        return self.sequence_ids.last(start)

    def start(self, allocator: PageAllocator, max_new_tokens: int, root: bytes, particles: int = 1) -> bool:
        """Allocate pages for the prompt and ``max_new_tokens`` more; return false if there are not enough.

        With several ``particles``, that is for as many continuations of the prompt; see :meth:`fork`.
        """
        prompt = self.tokens()
        count = pages_of(len(prompt), max_new_tokens, allocator.page_size, particles)
        pages = allocator.allocate(prompt, count, root)
        if pages is None:
            return False
        self._allocator, self.pages, self.prompt_end = allocator, pages, len(prompt) - 1
        self.block_table = [page.index for page in pages]
        self._commit_after = 1 + pages[-1].index % _COMMIT_INTERVAL
        return True

    def start_at(self, block_table: Sequence[int], position: int) -> None:
        """Use given pages that belong to no allocator and hold keys and values of the first ``position`` tokens."""
        self.block_table, self.position, self.prompt_end = block_table, position, len(self.sequence_ids) - 1

    def fork(self, block_table: Sequence[int]) -> CachedTokens:
        """Return an independent copy on given pages of the same keys and values, which the caller releases."""
        other = copy(self)
        other.sequence_ids = SeqTensor.from_tensor(self.sequence_ids.torch(), seq_dim=-1)
        other._allocator, other.pages, other.block_table = None, [], block_table
        return other

    def stop(self) -> None:
        """Release the pages."""
        self._commit()
        if self._allocator is not None:
            self._allocator.release(self.pages)
        self._allocator, self.pages, self.block_table = None, [], ()

    def skip_cached(self) -> None:
        """Skip tokens that its pages already hold, from whichever sequence."""
        if self._allocator is None:
            return
        before, size = self.position, self._allocator.page_size
        while not self.is_prefilled:
            number = self.position // size
            page = self.pages[number]
            end = min(number * size + len(page.tokens), self.prompt_end)
            if end <= self.position:
                break
            whole = end - self.position == size
            self.cached_pages += int(whole)
            self.copied |= not whole
            self.position = end
        self._committed = self._final = self.draft_position = self.position
        self.cached_tokens += self.position - before

    def prompt_chunk(self, limit: int) -> BatchRow | None:
        """Return the next chunk of the prompt, ``limit`` tokens at most, up to the end of a page or of the prompt.

        It is longer where an image would be divided whose tokens attend to each other.
        """
        end = min(self.prompt_end, self.position + limit)
        if self._allocator is not None:
            size = self._allocator.page_size
            if end < self.prompt_end and end // size * size > self.position:
                end = end // size * size
            for number in range(self.position // size + 1, end // size):
                if self.pages[number].tokens:
                    end = number * size
                    break
        if end <= self.position:
            return None
        end = min(whole_end(end, self.images.both_ways), self.prompt_end)
        ids = self.tokens(self.position)[: end - self.position]
        return BatchRow(ids, self.position, self.block_table, images=self.images)

    def computed(self, end: int, final: int) -> None:
        """Record that keys and values up to ``end`` are cached, and those up to ``final`` will not change."""
        self.position = end
        self.draft_position = min(self.draft_position, end)
        self._final = min(end, final)
        if self._final <= self.prompt_end:
            self._commit()
        elif self._final - self._committed >= self._commit_after:
            self._commit()
            self._commit_after = _COMMIT_INTERVAL

    def _commit(self) -> None:
        if self._allocator is not None and self._final > self._committed:
            tokens = self.tokens(self._committed)[: self._final - self._committed]
            self._allocator.commit(self.pages, tokens, self._committed)
            self._committed = self._final
