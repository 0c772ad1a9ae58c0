"""Special tokens in texts: the markers of a chat and the like, which are no text themselves."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constrain.engine.vocabulary import Vocabulary

#: A byte that no UTF-8 has; special tokens stand among bytes as their names between two of them.
MARK = b"\xff"


@dataclass(frozen=True)
class Piece:
    """A special token of a text, or what stands between them.

    Attributes:
        text: as it shows; the name of a special token.
        content: the bytes that the engine follows.
        special: it is a special token.
    """

    text: str
    content: bytes
    special: bool


def spelling(name: str) -> bytes:
    """The bytes that stand for a special token."""
    return MARK + name.encode() + MARK


def shown(content: bytes) -> str:
    """Bytes as text, with the names of special tokens."""
    return content.replace(MARK, b"").decode(errors="replace")


def pieces(text: str, names: Collection[str]) -> Iterator[Piece]:
    """Cuts a text at the names of special tokens, of which the longest counts."""
    name = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")
    done = 0
    for found in name.finditer(text):
        yield _plain(text[done : found.start()])
        yield Piece(found[0], spelling(found[0]), True)
        done = found.end()
    yield _plain(text[done:])


def why_missing(name: str, vocab: Vocabulary) -> str:
    """What to tell somebody who asks for a special token that the vocabulary does not have."""
    if any(vocab.token_bytes(token) == name.encode() for token in range(vocab.size)):
        return f"'{name}' is ordinary text in this vocabulary, no special token; write it as a string"
    near = get_close_matches(name, vocab.special_tokens) or sorted(vocab.special_tokens)[:5]
    return f"the vocabulary has no special token '{name}'; it has {', '.join(near) or 'none with a name'}"


def _plain(text: str) -> Piece:
    # A lone surrogate is in no text; its bytes are in no language.
    return Piece(text, text.encode(errors="surrogatepass"), False)
