"""The tokens of a tokenizer: vocabulary strings, their encoding of bytes, added and special tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from constrain._core import TokenSpelling
from constrain.errors import VocabularyError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE_MARK = "\u2581"
#: A space in the encoding of byte-level tokenizers.
BYTE_LEVEL_SPACE = "\u0120"

#: The entries of ``tokenizer_config.json`` that name special tokens.
ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")

# Substrings of these are encoded to verify the bytes of tokens: the bytes of an encoding must add up to the text.
_SAMPLE_TEXTS = (
    '{"name": "Ada", "age": 36, "tags": ["a", "b"], "ok": true, "none": null}',
    "The quick brown fox, 12.50 EUR; naïve café, Ελλάδα, Москва, 東京, 한국어, 🙂👍🏽!",
    "  two  spaces,\ttabs\nand\r\nlines\n\n",
    "snake_case camelCase kebab-case C:\\path\\file.txt https://example.org/a?b=c#d",
    "<tag attr='x'>&amp;</tag> [1](2) {3} `4` ~5~ ^6^ |7| @8 $9 %0",
)
_SAMPLE_LENGTH = 12


@dataclass(frozen=True)
class TokenTable:
    """The tokens of a tokenizer.

    Attributes:
        pieces: ids of the strings of the vocabulary.
        spelling: encoding of bytes in these strings.
        added: added tokens that are ordinary text, by id.
        special_ids: ids of special tokens, which have no text.
        first_space_optional: the decoder drops one space at the start of a text.
    """

    pieces: dict[str, int]
    spelling: TokenSpelling
    added: dict[int, str]
    special_ids: frozenset[int]
    first_space_optional: bool

    def size(self) -> int:
        """One more than the largest id."""
        return 1 + max([*self.pieces.values(), *self.added, *self.special_ids], default=-1)


def read_tokens(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> TokenTable:
    """Read the tokens of a tokenizer.

    Args:
        tokenizer: the tokenizer.
        settings: its ``tokenizer_config.json``, which may name special tokens.

    Raises:
        VocabularyError: the decoder does not map tokens to bytes one by one.
    """
    decoders = list(_decoders(tokenizer))
    added = tokenizer.get_added_tokens_decoder()
    special = {id_ for id_, token in added.items() if token.special}
    special.update(_ids(tokenizer, (_content(settings.get(role)) for role in ROLES)))
    return TokenTable(
        pieces=tokenizer.get_vocab(with_added_tokens=False),
        spelling=_spelling(decoders),
        added={id_: token.content for id_, token in added.items() if id_ not in special},
        special_ids=frozenset(special),
        first_space_optional=any(map(_strips_space, decoders)),
    )


def end_ids(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> list[int]:
    """Return the id of the end-of-sequence token of ``tokenizer_config.json``, if it names one."""
    return _ids(tokenizer, [_content(settings.get("eos_token"))])


def special_names(tokenizer: Tokenizer, table: TokenTable, eos: Iterable[int]) -> dict[int, str]:
    """Return the names of special tokens, those of end-of-sequence tokens included, by id."""
    return {id_: name for id_ in table.special_ids.union(eos) if (name := tokenizer.id_to_token(id_)) is not None}


def mid_text_encoder(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Return a function that encodes a text as it is encoded in the middle of another one.

    If the tokenizer prepends a space, the text is encoded after a line break, whose tokens are then removed. The result
    is empty if the line break and the text share a token.
    """

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    first = tokenizer.encode("\n", add_special_tokens=False).tokens[:1]
    if not any(piece.startswith((SPACE_MARK, BYTE_LEVEL_SPACE)) for piece in first):
        return encode
    line_break = encode("\n")

    def encode_after_break(text: str) -> list[int]:
        ids = encode("\n" + text)
        return ids[len(line_break) :] if ids[: len(line_break)] == line_break else []

    return encode_after_break


def sample_texts() -> Iterator[str]:
    """Yield a few hundred short and varied texts, to verify the bytes of tokens with."""
    for text in _SAMPLE_TEXTS:
        yield text
        for start in range(len(text) - _SAMPLE_LENGTH + 1):
            yield text[start : start + _SAMPLE_LENGTH]


def _ids(tokenizer: Tokenizer, names: Iterable[str | None]) -> list[int]:
    ids = (tokenizer.token_to_id(name) for name in names if name is not None)
    return [id_ for id_ in ids if id_ is not None]


def _content(token: Any) -> str | None:
    """Return the text of a token in ``tokenizer_config.json``, which is a string, or an object with ``content``."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _spelling(decoders: list[dict[str, Any]]) -> TokenSpelling:
    kinds = {decoder["type"] for decoder in decoders}
    if "ByteLevel" in kinds:
        return TokenSpelling.byte_level
    if "Metaspace" in kinds or any(map(_replaces_mark, decoders)):
        return TokenSpelling.byte_fallback if "ByteFallback" in kinds else TokenSpelling.sentence_piece
    raise VocabularyError(
        f"the tokenizer's decoder ({', '.join(sorted(kinds)) or 'none'}) is neither byte-level nor "
        "SentencePiece-like, so its tokens have no fixed bytes; use a model whose tokenizer has one of these"
    )


def _decoders(tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """Yield the leaves of the tree of decoders, as in ``tokenizer.json``."""
    if tokenizer.decoder is None:
        return
    pending = [json.loads(tokenizer.decoder.__getstate__())]
    while pending:
        decoder = pending.pop()
        if decoder["type"] == "Sequence":
            pending += reversed(decoder["decoders"])
        else:
            yield decoder


def _replaces_mark(decoder: dict[str, Any]) -> bool:
    pattern, content = decoder.get("pattern"), decoder.get("content")
    return bool(decoder["type"] == "Replace" and pattern == {"String": SPACE_MARK} and content == " ")


def _strips_space(decoder: dict[str, Any]) -> bool:
    if decoder["type"] == "Strip":
        return bool(decoder["content"] == " " and decoder["start"] >= 1)
    return bool(decoder["type"] == "Metaspace" and decoder.get("prepend_scheme", "always") != "never")
