"""The bytes that each token of a tokenizer stands for, read from its ``tokenizer.json``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from constrain.errors import VocabularyError

SPACE_MARK = "\u2581"

#: More tokens than any model has; ids beyond it are damage, not tokens.
MAX_TOKENS = 1 << 24


@dataclass(frozen=True)
class TokenTable:
    """Token bytes by id; empty for special tokens and for ids that no token has.

    Attributes:
        tokens: bytes of each token, as they stand in the middle of a text.
        special_ids: ids of special tokens, which are no text.
        first_space_optional: the decoder drops one space at the start of a text.
    """

    tokens: list[bytes]
    special_ids: frozenset[int]
    first_space_optional: bool


def read_tokens(tokenizer: dict[str, Any]) -> TokenTable:
    """Reads the token table out of a parsed ``tokenizer.json``.

    Raises:
        VocabularyError: the decoder is no mapping from tokens to bytes, so no text can be followed token by token.
    """
    vocabulary = tokenizer["model"]["vocab"]
    pieces = dict(vocabulary) if isinstance(vocabulary, dict) else {piece: i for i, (piece, _) in enumerate(vocabulary)}
    decoders = list(_decoders(tokenizer.get("decoder")))
    kinds = {decoder["type"] for decoder in decoders}
    if "ByteLevel" in kinds:
        by_id = {i: _byte_level(piece) for piece, i in pieces.items()}
    elif "Metaspace" in kinds or any(_replaces_mark(decoder) for decoder in decoders):
        by_id = {i: _sentence_piece(piece) for piece, i in pieces.items()}
    else:
        raise VocabularyError(
            f"the tokenizer's decoder ({', '.join(sorted(kinds)) or 'none'}) is neither byte-level nor "
            "SentencePiece-like, so its tokens have no fixed bytes; use a model whose tokenizer has one of these"
        )
    special: set[int] = set()
    for token in tokenizer.get("added_tokens", []):
        if token.get("special"):
            special.add(token["id"])
        else:
            by_id[token["id"]] = token["content"].encode()
    if absurd := [i for i in (*by_id, *special) if not (isinstance(i, int) and 0 <= i < MAX_TOKENS)]:
        raise VocabularyError(f"{absurd[0]!r} is no token id: ids are 0 to {MAX_TOKENS - 1:,}")
    tokens = [b""] * (max([*by_id, *special], default=-1) + 1)
    for i, text in by_id.items():
        tokens[i] = text
    # A special token is never text, even where its id also stands in the base vocabulary.
    for i in special:
        tokens[i] = b""
    return TokenTable(tokens, frozenset(special), any(_strips_space(decoder) for decoder in decoders))


def _decoders(decoder: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The leaves of a tree of decoders."""
    if decoder is None:
        return
    if decoder["type"] == "Sequence":
        for inner in decoder["decoders"]:
            yield from _decoders(inner)
    else:
        yield decoder


def _replaces_mark(decoder: dict[str, Any]) -> bool:
    pattern, content = decoder.get("pattern"), decoder.get("content")
    return bool(decoder["type"] == "Replace" and pattern == {"String": SPACE_MARK} and content == " ")


def _strips_space(decoder: dict[str, Any]) -> bool:
    if decoder["type"] == "Strip":
        return bool(decoder["content"] == " " and decoder["start"] >= 1)
    return bool(decoder["type"] == "Metaspace" and decoder.get("prepend_scheme", "always") != "never")


def _byte_table() -> dict[str, int]:
    """GPT-2's stand-ins for bytes: printable ones stand for themselves, the rest for U+0100 and up, in order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    hidden = (byte for byte in range(256) if byte not in table.values())
    table.update({chr(0x100 + i): byte for i, byte in enumerate(hidden)})
    return table


_BYTES = _byte_table()


def _byte_level(piece: str) -> bytes:
    try:
        return bytes(map(_BYTES.__getitem__, piece))
    except KeyError:
        # Not written in stand-ins: some tokenizers keep added pieces as plain text in the base vocabulary.
        return piece.encode()


def _sentence_piece(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(SPACE_MARK, " ").encode()
