"""Encoding of special tokens, such as the markers of a chat, as byte strings of the engine."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constrain.engine.vocabulary import Vocabulary

#: A byte that never occurs in UTF-8. A special token is encoded as its name between two of them.
MARK = b"\xff"


@dataclass(frozen=True)
class Piece:
    """A part of a text: one special token, or ordinary text between special tokens.

    Attributes:
        text: the text, or the name of the special token.
        content: its bytes in the engine's encoding.
        special: true for a special token.
    """

    text: str
    content: bytes
    special: bool


def spelling(name: str) -> bytes:
    """Encode a special token as bytes."""
    return MARK + name.encode() + MARK


def shown(content: bytes) -> str:
    """Decode bytes as text, special tokens as their names."""
    return content.replace(MARK, b"").decode(errors="replace")


def pieces(text: str, names: Collection[str]) -> Iterator[Piece]:
    """Split a text at the names of special tokens; the longest matching name wins."""
    name = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")
    end = 0
    for match in name.finditer(text):
        yield _plain(text[end : match.start()])
        yield Piece(match[0], spelling(match[0]), True)
        end = match.end()
    yield _plain(text[end:])


def why_missing(name: str, vocab: Vocabulary) -> str:
    """Explain that the vocabulary lacks a special token, for an error message."""
    if any(vocab.token_bytes(token) == name.encode() for token in range(vocab.size)):
        return f"'{name}' is ordinary text in this vocabulary, no special token; write it as a string"
    near = get_close_matches(name, vocab.special_tokens) or sorted(vocab.special_tokens)[:5]
    return f"the vocabulary has no special token '{name}'; it has {', '.join(near) or 'none with a name'}"


def _plain(text: str) -> Piece:
    # A lone surrogate must not raise here: its bytes are in no language, so the matcher refuses it.
    return Piece(text, text.encode(errors="surrogatepass"), False)
