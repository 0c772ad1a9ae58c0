"""The text of single tokens, and the tables made of it.

A *piece* is what a token adds to a text when it stands inside one: ``" the"`` for ``Ġthe`` and ``▁the``, ``"\\n"`` for
``<0x0A>``, and U+FFFD for each part of a character that is split over several tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constrain.tokenizer.backend import ExLlamaV2TokenizerHF

HOLE = "\ufffd"
"""Piece of an id that no token has: a text that no real text contains."""

_SPACE_MARKS = ("▁", "Ġ")


def decode_each(backend: ExLlamaV2TokenizerHF, size: int) -> list[str]:
    """Pieces of ids 0 to ``size - 1``; special tokens are ``""``.

    Many decoders drop the space in front of the first token. Such a backend decodes each id behind a token for one
    space, whose own text is then cut off.
    """
    decode_batch = backend.hf_tokenizer.decode_batch
    prefix = [] if _keeps_leading_space(backend) else _space_token(backend)
    head = len(backend.decode(prefix))
    texts: list[str] = decode_batch([[*prefix, idx] for idx in range(size)], skip_special_tokens=True)
    holes = set(range(size)).difference(backend.hf_tokenizer.get_vocab(with_added_tokens=True).values())
    return [HOLE if idx in holes else text[head:] for idx, text in enumerate(texts)]


def extend_pieces(pieces: list[str], size: int, literal: Mapping[int, str]) -> list[str]:
    """``pieces`` made ``size`` long, with the ids of ``literal`` showing their text."""
    extended = pieces[:size] + [HOLE] * (size - len(pieces))
    for idx, text in literal.items():
        extended[idx] = text
    return extended


def prefix_table(piece_to_id: Mapping[str, int]) -> dict[str, list[int]]:
    """For every piece the ascending ids of the pieces that start with it, itself included."""
    table: dict[str, list[int]] = {piece: [] for piece in piece_to_id if piece}
    for piece, idx in sorted(piece_to_id.items(), key=lambda item: item[1]):
        for end in range(1, len(piece) + 1):
            if (ids := table.get(piece[:end])) is not None:
                ids.append(idx)
    return table


def _keeps_leading_space(backend: ExLlamaV2TokenizerHF) -> bool:
    vocab: dict[str, int] = backend.hf_tokenizer.get_vocab(with_added_tokens=False)
    for mark in _SPACE_MARKS:
        # Only the mark in use is a token by itself; the other may still occur as an ordinary letter.
        if mark in vocab:
            probe = next(
                (idx for raw, idx in vocab.items() if len(raw) > 1 and raw[0] == mark and raw[1].isalnum()), None
            )
            return probe is None or backend.decode([probe]).startswith(" ")
    return True


def _space_token(backend: ExLlamaV2TokenizerHF) -> list[int]:
    marked = [idx for mark in _SPACE_MARKS if (idx := backend.piece_to_id(mark)) is not None]
    return marked[:1] or backend.encode(" ")[-1:]
