"""Page allocator of a KV cache with prefix caching: tracks the tokens, users and eviction order of pages.

A full page is keyed by a digest of its tokens and of all tokens before them, so that sequences with a common prefix
share pages (prefix caching). Pages of finished sequences stay cached until they are needed; the least recently used are
evicted first.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from constrain.errors import GenerationError

PAGED_PAGE_SIZE = 256
"""Tokens in a page."""

_ROOT = b""


@dataclass(eq=False)
class KVPage:
    """A page of the KV cache.

    Attributes:
        index: its number in block tables.
        tokens: tokens whose keys and values it holds, from its first position on.
        parent: key of the previous page of the sequence; for a first page, the root that stands for the adapters.
        key: digest of its tokens, once it is full or allocated to be filled with them, and of all tokens before them;
            ``None`` otherwise.
        users: number of running sequences that use it.
    """

    index: int
    tokens: list[int] = field(default_factory=list)
    parent: bytes = _ROOT
    key: bytes | None = None
    users: int = 0


def chain_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Return the digest of the tokens of a page, chained to ``parent``, the digest of all tokens before them."""
    return hashlib.blake2b(array("q", tokens).tobytes(), digest_size=16, key=parent).digest()


def pages_of(prompt: int, new: int, page_size: int, particles: int = 1) -> int:
    """Return the number of pages of sequences that share a prompt of ``prompt`` tokens, and add up to ``new`` each."""
    total, shared = -(-(prompt + new) // page_size), (prompt - 1) // page_size
    return shared + particles * (total - shared)


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    length = min(len(a), len(b))
    if a[:length] == b[:length]:  # prompts are often equal, and comparing lists is faster than comparing items
        return length
    return next((i for i in range(length) if a[i] != b[i]), length)


class PageAllocator:
    """Allocates the pages of one or more KV caches (of a model and its draft model) with common block tables.

    Attributes:
        pages: all pages, by index.
        page_size: tokens per page.
    """

    def __init__(self, num_pages: int, page_size: int, tensors: Callable[[], list[torch.Tensor]]) -> None:
        """``tensors``: returns the tensors that are stored by page, each ``[num_pages, page_size, ...]``."""
        self.page_size = page_size
        self.pages = [KVPage(index) for index in range(num_pages)]
        self._tensors = tensors
        self.reset()

    def reset(self) -> None:
        """Drop the contents of all pages.

        Raises:
            GenerationError: a sequence is running.
        """
        if any(page.users for page in self.pages):
            raise GenerationError("pages cannot be forgotten while jobs are running")
        self.pages = [KVPage(page.index) for page in self.pages]
        self._idle: OrderedDict[KVPage, None] = OrderedDict.fromkeys(self.pages)
        self._by_key: dict[bytes, KVPage] = {}
        self._children: dict[bytes, set[KVPage]] = {}

    def forget(self, indices: Sequence[int]) -> None:
        """Drop the contents of pages that are written outside this allocator; those its sequences use are kept."""
        for index in indices:
            if not self.pages[index].users:
                self._forget(self.pages[index], 0)

    @property
    def idle(self) -> list[KVPage]:
        """Pages that no sequence uses, in eviction order."""
        return list(self._idle)

    def match_prefix(
        self, prompt: Sequence[int], root: bytes
    ) -> tuple[list[bytes], list[KVPage | None], tuple[KVPage | None, int]]:
        """Look up the cached pages of a prompt, under a root that stands for its adapters.

        The last token of the prompt is always a cache miss: it has to go through the model to produce logits.

        Returns:
            The keys of all full pages of the prompt; the cached page, if any, of each; and the page with the longest
            common prefix with the tokens after the cached pages, and its length.
        """
        size, known = self.page_size, prompt[:-1]
        keys: list[bytes] = []
        for start in range(0, len(known) - size + 1, size):
            keys.append(chain_key(keys[-1] if keys else root, known[start : start + size]))
        pages = [self._by_key.get(key) for key in keys]
        missing = pages.index(None) if None in pages else len(pages)
        parent = keys[missing - 1] if missing else root
        return keys, pages, self._most_similar(parent, known[missing * size : (missing + 1) * size])

    def allocate(self, prompt: Sequence[int], count: int, root: bytes = _ROOT) -> list[KVPage] | None:
        """Allocate ``count`` pages for a sequence that starts with ``prompt``, and grows by at least one token.

        Pages that hold a prefix of the prompt, or will once another sequence has filled them, are shared. Into the
        first page that is not shared, the common prefix with the most similar cached page is copied.

        Returns:
            The pages, or ``None`` if there are not enough.
        """
        keys, cached, (source, common) = self.match_prefix(prompt, root)
        shared = [page for page in cached if page is not None]
        fresh = count - len(shared)
        if fresh > len(self._idle) - sum(page.users == 0 for page in shared):
            return None
        for page in shared:
            self._use(page)
        taken = self._take(fresh, source)
        if source is not None and source is not taken[0]:
            self.copy([source.index], [taken[0].index], common)
            taken[0].tokens = source.tokens[:common]
        for page, kept in zip(taken, [common] + [0] * (fresh - 1), strict=True):
            self._forget(page, kept)
        rest = iter(taken)
        pages = [page or next(rest) for page in cached] + list(rest)
        for page, parent, key in zip(pages, [root, *keys], [*keys, None], strict=False):
            if page in taken:
                self._claim(page, parent, key)
        return pages

    def release(self, pages: Sequence[KVPage]) -> None:
        """Release the pages of a sequence; their contents stay cached until the pages are reused."""
        # Later pages are useless without the earlier ones, so they are evicted first.
        for page in reversed(pages):
            page.users -= 1
            if page.users:
                continue
            if len(page.tokens) < self.page_size:
                self._unlist(page)
            self._idle[page] = None
            if not page.tokens:
                self._idle.move_to_end(page, last=False)

    def commit(self, pages: Sequence[KVPage], tokens: Sequence[int], start: int) -> None:
        """Record that keys and values of ``tokens``, at positions from ``start`` on, are final in their pages."""
        size = self.page_size
        for number, page in enumerate(pages[start // size : -(-(start + len(tokens)) // size)], start // size):
            have = number * size + len(page.tokens)
            new = tokens[have - start : (number + 1) * size - start]
            if have < start or not new:
                continue
            page.tokens.extend(new)
            self._children.setdefault(page.parent, set()).add(page)
            if len(page.tokens) == size:
                self._complete(page, pages[number + 1] if number + 1 < len(pages) else None)

    def copy(self, sources: Sequence[int], targets: Sequence[int], count: int) -> None:
        """Copy the first ``count`` positions of pages to others, both given by index."""
        with torch.inference_mode():
            if len(sources) == 1:  # as sequences start: indices on a GPU would make the host wait for its passes
                tensors = self._tensors()
                torch._foreach_copy_(
                    [each[targets[0], :count] for each in tensors], [each[sources[0], :count] for each in tensors]
                )
            elif sources:
                self._copy_many(sources, targets, count)

    def _copy_many(self, sources: Sequence[int], targets: Sequence[int], count: int) -> None:
        tensors = self._tensors()
        indices = {
            device: torch.tensor([sources, targets], device=device) for device in {each.device for each in tensors}
        }
        for tensor in tensors:
            (source, target), part = indices[tensor.device], tensor[:, :count]
            part.index_copy_(0, target, part.index_select(0, source))

    def _use(self, page: KVPage) -> None:
        self._idle.pop(page, None)
        page.users += 1

    def _most_similar(self, parent: bytes, tokens: Sequence[int]) -> tuple[KVPage | None, int]:
        """Return the page after ``parent`` with the longest common prefix with ``tokens``, and its length.

        A prefix of one token is not worth a copy.
        """
        best, most = None, 1
        if len(tokens) <= most:
            return None, 0
        for page in sorted(self._children.get(parent, ()), key=lambda page: page.index):
            if page.tokens[: most + 1] == tokens[: most + 1]:
                best, most = page, _common_length(page.tokens, tokens)
            if most == len(tokens):
                break
        return best, most if best is not None else 0

    def _take(self, count: int, source: KVPage | None) -> list[KVPage]:
        """Take the next ``count`` pages to evict, by index; ``source`` first if it is one, which saves a copy."""
        taken = [page for page, _ in zip(self._idle, range(count), strict=False)]
        taken.sort(key=lambda page: (page is not source, page.index))
        for page in taken:
            self._use(page)
        return taken

    def _claim(self, page: KVPage, parent: bytes, key: bytes | None) -> None:
        page.parent, page.key = parent, key
        if page.tokens:
            self._children.setdefault(parent, set()).add(page)
        if key is not None:
            self._by_key.setdefault(key, page)

    def _forget(self, page: KVPage, kept: int) -> None:
        """Remove a page from every index; it keeps its first ``kept`` tokens."""
        self._unlist(page)
        siblings = self._children.get(page.parent, set())
        siblings.discard(page)
        if not siblings:
            self._children.pop(page.parent, None)
        page.tokens, page.parent = page.tokens[:kept], _ROOT

    def _unlist(self, page: KVPage) -> None:
        if page.key is not None and self._by_key.get(page.key) is page:
            del self._by_key[page.key]
        page.key = None

    def _complete(self, page: KVPage, following: KVPage | None) -> None:
        if page.key is None:
            page.key = chain_key(page.parent, page.tokens)
            self._by_key.setdefault(page.key, page)
        if following is not None and not following.tokens:
            following.parent = page.key
