"""Pieces: the text of single tokens, and tables of it.

A *piece* is the text of a token in the middle of a text: ``" the"`` for ``Ġthe`` and ``▁the``, ``"\\n"`` for
``<0x0A>``, and U+FFFD for each part of a character that is split over several tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

HOLE = "\ufffd"
"""Piece of an unused id; does not occur in ordinary text."""

_SPACE_MARKS = ("▁", "Ġ")


class PieceDecoder(Protocol):
    """The part of a tokenizer backend that decoding single ids needs."""

    @property
    def hf_tokenizer(self) -> Any: ...
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: list[int]) -> str: ...
    def piece_to_id(self, text: str | None) -> int | None: ...


def decode_each(backend: PieceDecoder, size: int) -> list[str]:
    """Decode ids 0 to ``size - 1`` to pieces; special tokens are ``""``.

    Many decoders drop a space at the start of a text. With these, each id is decoded after a token for one space, whose
    text is then removed.
    """
    decode_batch = backend.hf_tokenizer.decode_batch
    prefix = [] if _keeps_leading_space(backend) else _space_token(backend)
    skip = len(backend.decode(prefix))
    texts: list[str] = decode_batch([[*prefix, idx] for idx in range(size)], skip_special_tokens=True)
    unused = set(range(size)).difference(backend.hf_tokenizer.get_vocab(with_added_tokens=True).values())
    return [HOLE if idx in unused else text[skip:] for idx, text in enumerate(texts)]


def extend_pieces(pieces: list[str], size: int, literal: Mapping[int, str]) -> list[str]:
    """Extend or cut ``pieces`` to ``size`` ids, and replace those of ``literal`` by its text."""
    extended = pieces[:size] + [HOLE] * (size - len(pieces))
    for idx, text in literal.items():
        extended[idx] = text
    return extended


def prefix_table(piece_to_id: Mapping[str, int]) -> dict[str, list[int]]:
    """Map every piece to the ascending ids of the pieces that start with it, itself included."""
    table: dict[str, list[int]] = {piece: [] for piece in piece_to_id if piece}
    for piece, idx in sorted(piece_to_id.items(), key=lambda item: item[1]):
        for end in range(1, len(piece) + 1):
            if (ids := table.get(piece[:end])) is not None:
                ids.append(idx)
    return table


def _keeps_leading_space(backend: PieceDecoder) -> bool:
    vocab: dict[str, int] = backend.hf_tokenizer.get_vocab(with_added_tokens=False)
    for mark in _SPACE_MARKS:
        # Only the mark in use is a token by itself; the other may still occur as an ordinary letter.
        if mark in vocab:
            word = next(
                (idx for raw, idx in vocab.items() if len(raw) > 1 and raw[0] == mark and raw[1].isalnum()), None
            )
            return word is None or backend.decode([word]).startswith(" ")
    return True


def _space_token(backend: PieceDecoder) -> list[int]:
    marked = [idx for mark in _SPACE_MARKS if (idx := backend.piece_to_id(mark)) is not None]
    return marked[:1] or backend.encode(" ")[-1:]
