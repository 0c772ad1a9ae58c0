"""The distribution over the alternatives of a value, by the prefix tree of their tokens.

A node of the tree is a beginning of the value, and divides its probability among the tokens that may come next. After
most tokens a single alternative is left, which is certain then, whatever its further tokens. How nodes divide theirs is
known along the tokens that the model has written. Other tokens that leave several alternatives begin *branches*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from constrain.engine.alternatives import Alternatives
from constrain.extract.extraction import PRESENT
from constrain.runtime.confidence import TokenConfidence

#: Share of probability in branches that several alternatives have in common beyond which a distribution is unknown.
MAX_UNKNOWN = 0.01
#: Probability below which a branch is left out.
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class Branch:
    """A beginning of a place after which several alternatives are possible.

    Attributes:
        tokens: its tokens.
        text: their bytes.
        probability: that the model writes them.
        heirs: the alternatives that would usually be written with these tokens, as no longer token begins them.
    """

    tokens: tuple[int, ...] = ()
    text: bytes = b""
    probability: float = 1.0
    heirs: tuple[int, ...] = ()


class Distribution:
    """The distribution over the alternatives of a value, as far as it is known.

    Attributes:
        alternatives: the alternatives.
        branches: the branches.
    """

    def __init__(self, alternatives: Alternatives, spell: Callable[[int], bytes], width: int) -> None:
        """
        Args:
            alternatives: the alternatives.
            spell: returns the bytes of a token.
            width: number of logits.
        """
        self.alternatives = alternatives
        self.branches: list[Branch] = []
        self._masses = [0.0] * len(alternatives)
        self._masses_before: dict[bytes, list[float]] = {}
        self._spell, self._width = spell, width

    def follow(self, tokens: Sequence[int], confidence: Sequence[TokenConfidence]) -> bool:
        """Add what the written tokens tell, from the first of the place on; return whether they lead to a value."""
        node = Branch()
        for token, each in zip(tokens, confidence, strict=True):
            self._masses_before[node.text] = list(self._masses)
            if not self.divide(node, each, token):
                return False
            node = self._after(node, token, math.exp(each.logprob))
            remaining = self.alternatives.remaining(node.text)
            if len(remaining) <= 1:
                for number in remaining:
                    self._masses[number] += node.probability
                return bool(remaining)
        return False

    def divide(self, node: Branch, confidence: TokenConfidence, taken: int | None = None) -> bool:
        """Divide the probability of a node among the tokens that may come next.

        Args:
            node: the node.
            confidence: the probabilities of the next tokens.
            taken: a token to leave out.

        Returns:
            Whether the probabilities of all tokens that matter are known.
        """
        if not (confidence.lists_all or self.alternatives.has_others):
            return False
        shares = confidence.choices(self._width)
        children = {token: self._after(node, token, share) for token, share in shares.items()}
        remaining = {token: self.alternatives.remaining(child.text) for token, child in children.items()}
        heirs = self._heirs(children, remaining)
        for token, child in children.items():
            if token == taken:
                continue
            if len(remaining[token]) == 1:
                self._masses[remaining[token][0]] += child.probability
            elif remaining[token] and child.probability > _NEGLIGIBLE:
                self.branches.append(Branch(child.tokens, child.text, child.probability, heirs[token]))
        if not confidence.lists_all:
            is_listed = taken is None or taken in shares
            known = sum(shares.values()) + (0.0 if is_listed else math.exp(confidence.logprob))
            self._masses[-1] += node.probability * max(0.0, 1.0 - known)
        return True

    def take_branches(self, limit: int) -> list[Branch]:
        """Remove and return the likeliest branches, at most ``limit``, for :meth:`divide` to divide them."""
        self.branches.sort(key=lambda branch: -branch.probability)
        taken, self.branches = self.branches[:limit], self.branches[limit:]
        return taken

    def probabilities(self) -> dict[str, float] | None:
        """Return the probabilities of the alternatives, the likeliest first; they sum to one.

        A branch that spells a text which the model has written with other tokens counts as that text does. Any other
        counts for the alternative that would usually be written with its tokens. ``None`` if branches that count for
        several have more than :data:`MAX_UNKNOWN` of the probability.
        """
        masses, unknown = list(self._masses), 0.0
        for branch in self.branches:
            if branch.text in self._masses_before:
                self._add_as_written(masses, branch)
            elif len(branch.heirs) == 1:
                masses[branch.heirs[0]] += branch.probability
            elif branch.heirs:
                unknown += branch.probability
        total = sum(masses)
        if total <= 0 or unknown > MAX_UNKNOWN * (total + unknown):
            return None
        names = [text.decode() for text in self.alternatives.texts] + [PRESENT] * self.alternatives.has_others
        ranked = sorted(zip(masses, names, strict=True), key=lambda pair: -pair[0])
        return {name: mass / total for mass, name in ranked}

    def _add_as_written(self, masses: list[float], branch: Branch) -> None:
        """Divide the probability of a branch as the written tokens with the same text divide theirs."""
        before = self._masses_before[branch.text]
        after = [mass - earlier for mass, earlier in zip(self._masses, before, strict=True)]
        total = sum(after)
        for number, mass in enumerate(after):
            masses[number] += branch.probability * mass / total if total else 0.0

    def _after(self, node: Branch, token: int, share: float) -> Branch:
        return Branch((*node.tokens, token), node.text + self._spell(token), node.probability * share)

    def _heirs(
        self, children: Mapping[int, Branch], remaining: Mapping[int, Sequence[int]]
    ) -> dict[int, tuple[int, ...]]:
        """Return, for each token, the alternatives of which it is the longest beginning."""
        longest: dict[int, int] = {}
        for number in range(len(self.alternatives.texts)):
            tokens = [token for token, numbers in remaining.items() if number in numbers]
            if tokens:
                longest[number] = max(tokens, key=lambda token: len(children[token].text))
        return {token: tuple(number for number, best in longest.items() if best == token) for token in children}
