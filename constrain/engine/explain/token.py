"""Explanation of a refused token."""

from __future__ import annotations

from dataclasses import dataclass

from constrain._core import Matcher
from constrain.engine.explain.expected import expected, listed, shown
from constrain.engine.explain.text import accept_prefix


@dataclass(frozen=True)
class TokenExplanation:
    """Whether a token is allowed next, and why not.

    Attributes:
        token: its id.
        text: its bytes; empty for a special token.
        allowed: true if it is allowed.
        fits: number of its leading bytes that are allowed.
        expected: descriptions of what is allowed after these; empty if the token is allowed, has neither text nor a
            name, or leads to a text that cannot be completed with tokens.
        reason: the explanation as a sentence.
    """

    token: int
    text: bytes
    allowed: bool
    fits: int
    expected: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return self.reason


def explain_token(matcher: Matcher, token: int) -> TokenExplanation:
    """Explain whether a matcher allows a token. Its state does not change."""
    matcher = matcher.clone()
    vocabulary = matcher.vocabulary
    text = vocabulary.bytes(token)
    special = dict(vocabulary.special).get(token)
    name = f"token {token}" + (f" `{shown(text)}`" if text else f" {special}" if special else "")
    if matcher.accept(token):
        return TokenExplanation(token, text, True, len(text), (), f"{name} is allowed")
    if not 0 <= token < vocabulary.size:
        return TokenExplanation(
            token, text, False, 0, (), f"there is no token {token}: the vocabulary has {vocabulary.size:,}"
        )
    if token in vocabulary.eos:
        wanted = expected(matcher)
        reason = f"{name} ends the text, which is not complete: expected {listed(wanted)}"
        return TokenExplanation(token, text, False, 0, wanted, reason)
    if not text and special is None:
        return TokenExplanation(token, text, False, 0, (), f"{name} is no text, so no constraint allows it")
    fits = accept_prefix(matcher, text)
    if text and fits == len(text):
        reason = f"{name} is refused: no tokens of the vocabulary complete the text after it"
        return TokenExplanation(token, text, False, fits, (), reason)
    wanted = expected(matcher)
    after = f"after its `{shown(text[:fits])}` " if fits else ""
    reason = f"{name} is refused: {after}expected {listed(wanted)}"
    return TokenExplanation(token, text, False, fits, wanted, reason)
