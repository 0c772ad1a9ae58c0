"""Character tries over the pieces of a vocabulary."""

from __future__ import annotations

from collections.abc import Iterable


class Trie:
    """A node of a trie.

    Attributes:
        children: next node for each character.
        leaf: ids of the tokens whose piece ends here.
    """

    __slots__ = ("children", "leaf")

    def __init__(self, children: dict[str, Trie] | None = None, leaf: list[int] | None = None) -> None:
        self.children: dict[str, Trie] = {} if children is None else children
        self.leaf: list[int] = [] if leaf is None else leaf


def build_trie(pieces: Iterable[str]) -> Trie:
    """Build the trie of all non-empty ``pieces``, whose ids are their positions."""
    root = Trie()
    for idx, piece in enumerate(pieces):
        if not piece:
            continue
        node = root
        for char in piece:
            child = node.children.get(char)
            if child is None:
                child = node.children[char] = Trie()
            node = child
        node.leaf.append(idx)
    return root
