"""Prediction of tokens from counts of n-grams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class NgramCacheNode:
    """A node of the trie: counts for one n-gram, and longer n-grams with the same end.

    Attributes:
        next_tokens: counts of the tokens that followed.
        children: nodes by the preceding token.
    """

    next_tokens: Counter[int] = field(default_factory=Counter)
    children: dict[int, NgramCacheNode] = field(default_factory=dict)


class NgramCache:
    """Counts of the tokens that follow n-grams, in a trie over reversed n-grams.

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
        """Count the token after each n-gram of ``tokens``."""
        for end in range(self.min_len, len(tokens)):
            self.update_single(tokens[max(0, end - self.max_len) : end + 1])

    def update_single(self, tokens: Sequence[int]) -> None:
        """Count the last token, for each n-gram that ends directly before it."""
        node = self.root
        for length, token in enumerate(reversed(tokens[-self.max_len - 1 : -1]), 1):
            node = node.children.setdefault(token, NgramCacheNode())
            if length >= self.min_len:
                node.next_tokens[tokens[-1]] += 1

    def predict_next(self, context: Sequence[int], threshold: int = 1, preload: NgramCache | None = None) -> int | None:
        """Predict the next token: the most frequent one after the longest suffix of ``context`` with enough counts.

        Args:
            context: token ids.
            threshold: minimum count.
            preload: cache to use if this one has no prediction.
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
