"""The tokens of a tokenizer: ids of special roles, and tables of all tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from constrain.arguments import refused
from constrain.errors import TokenizerError
from constrain.tokenizer.backend import ExLlamaV2TokenizerHF
from constrain.tokenizer.files import read_json_object
from constrain.tokenizer.pieces import extend_pieces, prefix_table
from constrain.tokenizer.special import (
    MAX_TOKEN_ID,
    TokenizerConfig,
    find_pad,
    find_role,
    read_added_vocabulary,
)
from constrain.tokenizer.tries import Trie as TrieNode
from constrain.tokenizer.tries import build_trie

if TYPE_CHECKING:
    import tokenizers
    import torch

T = TypeVar("T")

_LOCK = threading.RLock()


class TokenizerVocabulary:
    """The vocabulary of a tokenizer.

    Tables are built on first use, and must not be changed by the caller.

    Attributes:
        config: the model's config; the vocabulary size of the model is ``config.vocab_size``.
        tokenizer_model: the backend, also ``tokenizer``.
        bos_token_id, eos_token_id, unk_token_id: ids, or ``None`` if the model has none.
        pad_token_id: id of padding, or -1 if the model has none.
        extended_id_to_piece, extended_piece_to_id: special tokens.
        unspecial_id_to_piece, unspecial_piece_to_id: other added tokens that the backend does not decode to their text.
        actual_vocab_size: one more than the largest id with a token; may be smaller or larger than the model's.
        tokenizer_config_dict: ``tokenizer_config.json``, or ``None``.
    """

    Trie = TrieNode

    def __init__(
        self, config: TokenizerConfig, lazy_init: bool = True, force_json: bool = False, force_spm: bool = False
    ) -> None:
        """Read the tokenizer of ``config.model_dir``.

        Args:
            config: a prepared ``ExLlamaV2Config``.
            lazy_init: build the tables on first use instead of now.
            force_json: accepted for compatibility; ``tokenizer.json`` is always read.
            force_spm: not available.

        Raises:
            ArgumentError: ``config`` is not a config.
            TokenizerNotFound: there is no ``tokenizer.json``.
            TokenizerError: a file is malformed, or the model's vocabulary is smaller than the tokenizer's.
        """
        if force_spm:
            raise TokenizerError("SentencePiece models are not read; convert it to a tokenizer.json")
        if not hasattr(config, "model_dir"):
            raise refused("config", config, "an ExLlamaV2Config")
        if config.model_dir is None:
            raise TokenizerError("config.model_dir is not set; prepare the config with the folder of a model first")
        model_dir = Path(config.model_dir)
        self.config = config
        self.tokenizer_model = ExLlamaV2TokenizerHF(model_dir / "tokenizer.json")
        self._id_limit = self.tokenizer_model.id_limit()
        self._check_vocabulary(model_dir)

        path = model_dir / "tokenizer_config.json"
        settings = read_json_object(path, TokenizerError) if path.is_file() else None
        self.tokenizer_config_dict = settings
        backend = self.tokenizer_model
        self.unk_token_id = backend.unk_id()
        self.bos_token_id = find_role("bos_token", config.bos_token_id, backend, settings)
        self.eos_token_id = find_role("eos_token", config.eos_token_id, backend, settings)
        self.pad_token_id = find_pad(config.pad_token_id, backend, settings, self.bos_token_id, self.eos_token_id)

        added = read_added_vocabulary(model_dir, backend, settings)
        for idx in (self.unk_token_id, self.bos_token_id, self.eos_token_id):
            if idx is not None and backend.id_to_piece(idx):
                added.special.setdefault(idx, backend.id_to_piece(idx))
        self.extended_id_to_piece = added.special
        self.extended_piece_to_id = {text: idx for idx, text in added.special.items()}
        self.unspecial_id_to_piece = added.hidden
        self.unspecial_piece_to_id = {text: idx for idx, text in added.hidden.items()}
        self.actual_vocab_size = max(self._id_limit, *(idx + 1 for idx in (*added.special, *added.hidden)), 0)

        self.unk_token = self._role_text(self.unk_token_id)
        self.bos_token = self._role_text(self.bos_token_id)
        self.eos_token = self._role_text(self.eos_token_id)
        self.pad_token = ""
        self.newline_token, self.newline_token_id = "\n", _last(backend.encode("\n"))
        self.space_token, self.space_token_id = " ", _last(backend.encode(" "))

        self._tables: dict[str, Any] = {}
        if not lazy_init:
            self._build_all()

    @property
    def tokenizer(self) -> ExLlamaV2TokenizerHF:
        """The backend."""
        return self.tokenizer_model

    @property
    def hf_tokenizer(self) -> tokenizers.Tokenizer:
        """The underlying tokenizer of the ``tokenizers`` library."""
        return self.tokenizer_model.hf_tokenizer

    def get_vocab_size(self) -> int:
        """``actual_vocab_size``."""
        return self.actual_vocab_size

    def get_id_to_piece_list(self, include_special_tokens: bool = False) -> list[str]:
        """Pieces by id, ``actual_vocab_size`` long.

        Special tokens of the backend are ``""`` unless ``include_special_tokens``; other special tokens are always
        their names.
        """
        if include_special_tokens:
            return self._table("special_pieces", lambda: self._pieces(self.extended_id_to_piece))

        def build() -> list[str]:
            return self._pieces({i: text for i, text in self.extended_id_to_piece.items() if i >= self._id_limit})

        return self._table("pieces", build)

    def get_piece_to_id_dict(self) -> dict[str, int]:
        """Ids by piece; the highest one if several tokens have the same piece."""
        return self._table("piece_to_id", lambda: {piece: idx for idx, piece in enumerate(self.get_id_to_piece_list())})

    def get_prefix_to_ids_dict(self) -> dict[str, list[int]]:
        """Ascending ids of the pieces that start with a piece, by that piece."""
        return self._table("prefix_to_ids", lambda: prefix_table(self.get_piece_to_id_dict()))

    def get_prefix_id_to_ids_dict(self) -> dict[int, list[int]]:
        """:meth:`get_prefix_to_ids_dict` by the id of the prefix; an id without an entry maps to itself."""

        def build() -> dict[int, list[int]]:
            by_id = {idx: [idx] for idx in range(self.config.vocab_size or self.actual_vocab_size)}
            ids = self.get_piece_to_id_dict()
            by_id.update({ids[piece]: starting for piece, starting in self.get_prefix_to_ids_dict().items()})
            return by_id

        return self._table("prefix_id_to_ids", build)

    def get_id_to_ord_list(self) -> list[int]:
        """By id, the code of a raw piece that is one character of code 0 to 255, or ``<0xNN>``; else -1."""
        id_to_ord = self.tokenizer_model.id_to_ord
        return self._table("ords", lambda: [id_to_ord(idx) for idx in range(self.actual_vocab_size)])

    def get_char_trie(self) -> TrieNode:
        """Trie of all non-empty pieces."""
        return self._table("trie", lambda: build_trie(self.get_id_to_piece_list()))

    def get_char_trie_ci(self) -> TrieNode:
        """Trie of all non-empty pieces in lower case."""
        return self._table("trie_ci", lambda: build_trie(piece.lower() for piece in self.get_id_to_piece_list()))

    def single_id(self, token: str) -> int | None:
        """Id of the token with exactly this text; special tokens have precedence."""
        special = self.extended_piece_to_id.get(token)
        return self.get_piece_to_id_dict().get(token) if special is None else special

    def single_token(self, token_id: int) -> torch.Tensor:
        """A token id as a tensor, int64 ``[1, 1]``."""
        import torch

        return torch.tensor([[token_id]], dtype=torch.long)

    def _check_vocabulary(self, model_dir: Path) -> None:
        """Raise if the tokenizer has ids outside of the model's vocabulary, or too large for tables.

        From the model's vocabulary, added tokens are exempt: published models have some for modes of use that they do
        not support. The model refuses such an id in its input.
        """
        if self._id_limit > MAX_TOKEN_ID + 1:
            raise TokenizerError(
                f"{model_dir}: tokenizer.json has token id {self._id_limit - 1}; ids up to {MAX_TOKEN_ID} are read"
            )
        ids = self.tokenizer_model.hf_tokenizer.get_vocab(with_added_tokens=False).values()
        largest, size = max(ids, default=-1), self.config.vocab_size
        if size is not None and largest >= size and largest not in self.tokenizer_model.added_tokens():
            raise TokenizerError(
                f"{model_dir}: tokenizer.json has token id {largest}, but config.json has vocab_size {size}; "
                "the two files belong to different models"
            )

    def _role_text(self, idx: int | None) -> str:
        return self.extended_id_to_piece.get(idx, "") if idx is not None else ""

    def _pieces(self, literal: dict[int, str]) -> list[str]:
        plain = [piece for _, piece in self.tokenizer_model.enumerate_tokens()]
        return extend_pieces(plain, self.actual_vocab_size, {**self.unspecial_id_to_piece, **literal})

    def _table(self, name: str, build: Callable[[], T]) -> T:
        if name not in self._tables:
            with _LOCK:
                if name not in self._tables:
                    self._tables[name] = build()
        return cast(T, self._tables[name])

    def _build_all(self) -> None:
        self.get_id_to_piece_list(True)
        self.get_prefix_id_to_ids_dict()
        self.get_id_to_ord_list()
        self.get_char_trie()
        self.get_char_trie_ci()


def _last(ids: list[int]) -> int | None:
    return ids[-1] if ids else None
