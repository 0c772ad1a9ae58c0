"""Guessing tokens by what followed the same tokens before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class NgramCacheNode:
    """What followed some tokens, and where longer ones go on.

    Attributes:
        next_tokens: how often each token came next.
        children: by the token before.
    """

    next_tokens: Counter[int] = field(default_factory=Counter)
    children: dict[int, NgramCacheNode] = field(default_factory=dict)


class NgramCache:
    """Counts of the tokens that follow n-grams, in a trie over each n-gram read backwards.

    Args:
        min_len, max_len: lengths of the n-grams.
        preload: token ids to count.
    """

    def __init__(self, min_len: int, max_len: int, preload: Sequence[int] | None = None) -> None:
        self.min_len, self.max_len = min_len, max_len
        self.root = NgramCacheNode()
        if preload is not None:
            self.update(preload)

    def update(self, tokens: Sequence[int]) -> None:
        """Count what follows each n-gram of ``tokens``."""
        for end in range(self.min_len, len(tokens)):
            self.update_single(tokens[max(0, end - self.max_len) : end + 1])

    def update_single(self, tokens: Sequence[int]) -> None:
        """Count the last token behind each n-gram that ends right before it."""
        node = self.root
        for length, token in enumerate(reversed(tokens[-self.max_len - 1 : -1]), 1):
            node = node.children.setdefault(token, NgramCacheNode())
            if length >= self.min_len:
                node.next_tokens[tokens[-1]] += 1

    def predict_next(self, context: Sequence[int], threshold: int = 1, preload: NgramCache | None = None) -> int | None:
        """The token that most often followed the longest end of ``context`` that one followed ``threshold`` times.

        Args:
            context: token ids.
            threshold: least count.
            preload: looked into where this cache knows none.
        """
        best, node = None, self.root
        for length, token in enumerate(reversed(context[-self.max_len :]), 1):
            if token not in node.children:
                break
            node = node.children[token]
            found = node.next_tokens.most_common(1)
            if length >= self.min_len and found and found[0][1] >= threshold:
                best = found[0][0]
        if best is None and preload is not None:
            return preload.predict_next(context, threshold)
        return best
