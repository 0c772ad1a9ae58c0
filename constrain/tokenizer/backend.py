"""The tokenizer backend: ``tokenizers.Tokenizer`` behind a small interface."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from constrain.errors import TokenizerError, TokenizerNotFound
from constrain.tokenizer.files import check_content
from constrain.tokenizer.pieces import decode_each

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class ExLlamaV2TokenizerHF:
    """Encodes and decodes with ``tokenizer.json``, without adding special tokens.

    Attributes:
        hf_tokenizer: the underlying tokenizer.
        vocab: decoded piece of every id; ``None`` until the first use of :meth:`enumerate_tokens`.

    Raises:
        TokenizerNotFound: the file does not exist.
        TokenizerError: it is not a tokenizer that the ``tokenizers`` library can read.
    """

    def __init__(self, tokenizer_json: Path) -> None:
        self.hf_tokenizer = _read_tokenizer(tokenizer_json)
        self.vocab: list[str] | None = None
        self._space: str | None = None
        self._newline: str | None = None

    def vocab_size(self) -> int:
        """Number of tokens, added tokens included. Ids may have gaps: :meth:`id_limit` is their bound."""
        return self.hf_tokenizer.get_vocab_size(with_added_tokens=True)

    def id_limit(self) -> int:
        """One more than the largest id."""
        return 1 + max(self.hf_tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def added_tokens(self) -> dict[int, AddedToken]:
        """Added tokens by id; they are matched in the text before the tokenization algorithm runs."""
        added: dict[int, AddedToken] = self.hf_tokenizer.get_added_tokens_decoder()
        return added

    def id_to_piece(self, idx: int | None) -> str:
        """Raw vocabulary string of ``idx`` (``Ġhello``, ``▁hello``, ``<0x0A>``); ``""`` if the id is unused."""
        return "" if idx is None else self.hf_tokenizer.id_to_token(idx) or ""

    def piece_to_id(self, text: str | None) -> int | None:
        """Id of a raw vocabulary string; ``None`` if no token has it."""
        if text is None or _LONE_SURROGATE.search(text):
            return None
        return self.hf_tokenizer.token_to_id(text)

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``, without special tokens added."""
        # Batches are encoded without Python's lock; those called fast have no offsets, and take a quarter of the time.
        ids: list[int] = self.hf_tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of ``text``, without special tokens added, and the characters from and up to which each stands."""
        encoding = self.hf_tokenizer.encode_batch([text], add_special_tokens=False)[0]
        # The list of all offsets would be made in one go, with Python's lock.
        offsets: list[Any] = [encoding.token_to_chars(number) for number in range(len(encoding))]
        return encoding.ids, offsets

    def decode(self, ids: list[int]) -> str:
        """Text of ``ids``, special tokens skipped."""
        return self.hf_tokenizer.decode(ids, skip_special_tokens=True)

    def enumerate_tokens(self) -> Iterator[tuple[int, str]]:
        """Iterate over all ids with their decoded pieces; see :func:`constrain.tokenizer.pieces.decode_each`."""
        if self.vocab is None:
            self.vocab = decode_each(self, self.id_limit())
        return iter(enumerate(self.vocab))

    def unk_token(self) -> str | None:
        """Raw piece of the token for unknown text, or ``None``."""
        token: str | None = getattr(self.hf_tokenizer.model, "unk_token", None)
        return token

    def unk_id(self) -> int | None:
        """Id of the token for unknown text, or ``None``."""
        return self.piece_to_id(self.unk_token())

    # tokenizer.json does not name the tokens of these roles; TokenizerVocabulary takes them from other files.
    def pad_id(self) -> None:
        """Always ``None``."""

    def bos_id(self) -> None:
        """Always ``None``."""

    def eos_id(self) -> None:
        """Always ``None``."""

    def pad_token(self) -> None:
        """Always ``None``."""

    def bos_token(self) -> None:
        """Always ``None``."""

    def eos_token(self) -> None:
        """Always ``None``."""

    def space_char(self) -> str:
        """Character that represents a space in raw pieces."""
        if self._space is None:
            self._space = self.deduce_char_map(" ")
        return self._space

    def newline_char(self) -> str:
        """Character that represents a line feed in raw pieces."""
        if self._newline is None:
            self._newline = self.deduce_char_map("\n")
        return self._newline

    def deduce_char_map(self, char: str) -> str:
        """Find the character that represents ``char`` in raw pieces, by encoding it."""
        ids = self.encode(char)
        piece = self.id_to_piece(ids[-1]) if ids else ""
        if byte := _BYTE_TOKEN.fullmatch(piece):
            return chr(int(byte[1], 16))
        return piece[-1:] or char

    def clean_special_chars(self, piece: str) -> str:
        """Replace the representations of space and line feed in a raw piece by the characters themselves."""
        return piece.replace(self.space_char(), " ").replace(self.newline_char(), "\n")

    def piece_to_ord(self, piece: str) -> int:
        """Code of a raw piece that is one character of code 0 to 255, or ``<0xNN>``; else -1."""
        if byte := _BYTE_TOKEN.fullmatch(piece):
            return int(byte[1], 16)
        text = self.clean_special_chars(piece)
        return ord(text) if len(text) == 1 and ord(text) < 256 else -1

    def id_to_ord(self, idx: int) -> int:
        """:meth:`piece_to_ord` of the raw piece of ``idx``."""
        return self.piece_to_ord(self.id_to_piece(idx))


def _read_tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        wanted = "a model folder needs a tokenizer.json of the tokenizers library"
        if path.with_name("tokenizer.model").is_file():
            wanted += (
                "; transformers makes one of tokenizer.model: AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            )
        raise TokenizerNotFound(f"{path}: no such file; {wanted}")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as cause:  # the library raises bare Exception
        check_content(path, TokenizerError)
        raise TokenizerError(f"{path}: the tokenizers library cannot read it ({cause})") from cause
    # A file may configure truncation and padding, which would silently change encodings.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
