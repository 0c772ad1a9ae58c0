"""``ExLlamaV2Tokenizer``: batches, padding, special tokens, and tables over the vocabulary."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload

import torch

from constrain.arguments import check_text, refused, texts_of
from constrain.errors import TokenizerError
from constrain.tokenizer.backend import ExLlamaV2TokenizerHF
from constrain.tokenizer.chat import ChatTemplate, read_chat_templates
from constrain.tokenizer.files import read_json_object
from constrain.tokenizer.pieces import extend_pieces, prefix_table
from constrain.tokenizer.special import TokenizerConfig, find_pad, find_role, read_added_vocabulary, token_text
from constrain.tokenizer.tries import Trie as TrieNode
from constrain.tokenizer.tries import build_trie

if TYPE_CHECKING:
    import tokenizers

T = TypeVar("T")

_LOCK = threading.RLock()


class TextEmbedding(Protocol):
    """Embeddings that a text refers to by an alias, and that have token ids of their own."""

    @property
    def text_alias(self) -> str: ...
    def get_ids(self) -> list[int]: ...


class ExLlamaV2Tokenizer:
    """The tokenizer of a model folder.

    Attributes:
        config: the config it was made from; the vocabulary size of the model is ``config.vocab_size``.
        tokenizer_model: the backend, also ``tokenizer``.
        bos_token_id, eos_token_id, unk_token_id: ids, or ``None`` where the model has none.
        pad_token_id: id that fills batches, or -1 where the model has none.
        extended_id_to_piece, extended_piece_to_id: special tokens.
        unspecial_id_to_piece, unspecial_piece_to_id: other added tokens that the backend does not decode to themselves.
        actual_vocab_size: one more than the largest id that has a token; may be smaller or larger than the model's.
        tokenizer_config_dict: ``tokenizer_config.json``, or ``None``.

    Instances hash by identity and may be shared by threads.
    """

    Trie = TrieNode

    def __init__(
        self, config: TokenizerConfig, lazy_init: bool = True, force_json: bool = False, force_spm: bool = False
    ) -> None:
        """Read the tokenizer of ``config.model_dir``.

        Args:
            config: a prepared ``ExLlamaV2Config``.
            lazy_init: build the tables on first use instead of now.
            force_json: accepted for compatibility; ``tokenizer.json`` is always what is read.
            force_spm: not available.

        Raises:
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

        self.tokenized_str_cache: dict[str, torch.Tensor] = {}
        self.max_cached_strings = 100
        self._tables: dict[str, Any] = {}
        if not lazy_init:
            self._build_all()

    @property
    def tokenizer(self) -> ExLlamaV2TokenizerHF:
        """The backend."""
        return self.tokenizer_model

    @property
    def hf_tokenizer(self) -> tokenizers.Tokenizer:
        """The tokenizer of the ``tokenizers`` library underneath."""
        return self.tokenizer_model.hf_tokenizer

    # Text to ids

    @overload
    def encode(
        self,
        text: str | list[str],
        add_bos: bool = ...,
        add_eos: bool = ...,
        encode_special_tokens: bool = ...,
        return_offsets: Literal[False] = ...,
        embeddings: Sequence[TextEmbedding] | None = ...,
    ) -> torch.Tensor: ...
    @overload
    def encode(
        self,
        text: str | list[str],
        add_bos: bool = ...,
        add_eos: bool = ...,
        encode_special_tokens: bool = ...,
        *,
        return_offsets: Literal[True],
        embeddings: Sequence[TextEmbedding] | None = ...,
    ) -> tuple[torch.Tensor, torch.Tensor]: ...
    def encode(
        self,
        text: str | list[str],
        add_bos: bool = False,
        add_eos: bool = False,
        encode_special_tokens: bool = False,
        return_offsets: bool = False,
        embeddings: Sequence[TextEmbedding] | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Token ids of a text or of a batch of texts.

        Args:
            text: one text, or a list of them.
            add_bos, add_eos: put BOS before, EOS after each text, where the model has them.
            encode_special_tokens: cut the text at the literal strings of special tokens first. The backend recognises
                those of ``tokenizer.json`` in any case.
            return_offsets: return position offsets too.
            embeddings: their aliases in the text become their id ranges.

        Returns:
            int64 ids ``[rows, length]``, short rows padded on the left with ``pad_token_id``; with ``return_offsets``
            also int32 ``[rows]``, minus the number of padding tokens in each row.

        Raises:
            ArgumentError: it is neither a text nor a list of texts.
        """
        texts = texts_of("text", [text] if isinstance(text, str) else text)
        rows = [self._encode_row(row, add_bos, add_eos, encode_special_tokens, embeddings or ()) for row in texts]
        width = max(map(len, rows), default=0)
        padded = [[self.pad_token_id] * (width - len(row)) + row for row in rows]
        ids = torch.tensor(padded, dtype=torch.long).reshape(len(rows), width)
        if not return_offsets:
            return ids
        return ids, torch.tensor([len(row) - width for row in rows], dtype=torch.int)

    def encode_special(self, text: str) -> list[int]:
        """Ids of a text in which the literal strings of special tokens become those tokens."""
        pattern = self._table("special_pattern", lambda: _alternation(self.extended_piece_to_id))
        special = {literal: [idx] for literal, idx in self.extended_piece_to_id.items()}
        return _encode_around(pattern, text, special, self.encode_unspecial)

    def encode_unspecial(self, text: str) -> list[int]:
        """Ids of a text as the backend encodes it."""
        return self.tokenizer_model.encode(text)

    def cached_encode_str(self, text: str) -> torch.Tensor:
        """``encode(text)``, remembered for the last ``max_cached_strings`` texts."""
        with _LOCK:
            if text not in self.tokenized_str_cache:
                while len(self.tokenized_str_cache) >= self.max_cached_strings:
                    del self.tokenized_str_cache[next(iter(self.tokenized_str_cache))]
                self.tokenized_str_cache[text] = self.encode(text)
            return self.tokenized_str_cache[text]

    def num_tokens(self, text: str) -> int:
        """Number of tokens of a text, without BOS and EOS.

        Raises:
            ArgumentError: it is no text.
        """
        check_text("text", text)
        return len(self.tokenizer_model.encode(text))

    # Messages to text

    @property
    def chat_templates(self) -> dict[str, ChatTemplate]:
        """The chat templates of the model folder by name; most have one, called ``default``, or none.

        Raises:
            TokenizerError: a template is malformed.
        """
        folder = Path(self.config.model_dir or "")
        return self._table("chat_templates", lambda: read_chat_templates(folder, self.tokenizer_config_dict))

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt for a chat, as the model's own template writes it.

        Encode it with ``encode_special_tokens=True`` and without ``add_bos``: templates write special tokens
        themselves.

        Args:
            messages: each with ``role`` (``"system"``, ``"user"``, ``"assistant"``) and ``content``.
            add_generation_prompt: end with what comes before an answer of the model.
            tools: JSON Schemas of functions that the model may call; for them the template ``tool_use`` is taken where
                there is one.
            variables: further names for the template.

        Raises:
            TokenizerError: there is no template, or it is malformed, fails or refuses the messages.
        """
        templates = self.chat_templates
        template = templates.get("tool_use") if tools else None
        template = template or templates.get("default")
        if template is None:
            found = f"only {', '.join(templates)}" if templates else "none"
            raise TokenizerError(f"{self.config.model_dir}: no chat template called default: {found}")
        given = {"tools": tools, "documents": None, "add_generation_prompt": add_generation_prompt}
        return template.render(messages, {**self._role_texts(), **given, **variables})

    # Ids to text

    def decode(self, ids: torch.Tensor | list[torch.Tensor], decode_special_tokens: bool = False) -> Any:
        """Text of token ids.

        Padding, ids that no token has, and (without ``decode_special_tokens``) special tokens are left out.

        Args:
            ids: ``[length]``, ``[rows, length]``, or a list of such tensors.
            decode_special_tokens: show special tokens as their literal text.

        Returns:
            A string for one dimension, a list of strings for two (one row too), a list of these for a list.

        Raises:
            TokenizerError: ``ids`` is something else.
        """
        if isinstance(ids, list):
            return [self.decode(row, decode_special_tokens) for row in ids]
        if not isinstance(ids, torch.Tensor) or ids.dim() not in (1, 2) or ids.is_floating_point():
            raise TokenizerError("decode takes a tensor of ids, of one or two dimensions, or a list of such tensors")
        if ids.dim() == 2:
            return [self._decode_row(row, decode_special_tokens) for row in ids.tolist()]
        return self._decode_row(ids.tolist(), decode_special_tokens)

    def padding_mask(self, ids: torch.Tensor) -> torch.Tensor:
        """Additive attention mask, float16, shaped as ``ids``: -inf at ``pad_token_id``, else 0."""
        return torch.zeros(ids.shape, dtype=torch.half).masked_fill_(ids == self.pad_token_id, -torch.inf)

    # Tables over the vocabulary, each built once; none may be changed by the caller

    def get_vocab_size(self) -> int:
        """``actual_vocab_size``."""
        return self.actual_vocab_size

    def get_id_to_piece_list(self, include_special_tokens: bool = False) -> list[str]:
        """Decoded text by id, ``actual_vocab_size`` long.

        Special tokens of the backend are ``""`` unless ``include_special_tokens``; those beyond it always show.
        """
        if include_special_tokens:
            return self._table("special_pieces", lambda: self._pieces(self.extended_id_to_piece))
        beyond = {idx: text for idx, text in self.extended_id_to_piece.items() if idx >= self._id_limit}
        return self._table("pieces", lambda: self._pieces(beyond))

    def get_piece_to_id_dict(self) -> dict[str, int]:
        """Id by decoded text; the highest one where several tokens have the same text."""
        return self._table("piece_to_id", lambda: {piece: idx for idx, piece in enumerate(self.get_id_to_piece_list())})

    def get_prefix_to_ids_dict(self) -> dict[str, list[int]]:
        """For every piece the ascending ids of the pieces that start with it."""
        return self._table("prefix_to_ids", lambda: prefix_table(self.get_piece_to_id_dict()))

    def get_prefix_id_to_ids_dict(self) -> dict[int, list[int]]:
        """:meth:`get_prefix_to_ids_dict` by the id of the prefix; an id without an entry has itself alone."""

        def build() -> dict[int, list[int]]:
            by_id = {idx: [idx] for idx in range(self.config.vocab_size or self.actual_vocab_size)}
            ids = self.get_piece_to_id_dict()
            by_id.update({ids[piece]: starting for piece, starting in self.get_prefix_to_ids_dict().items()})
            return by_id

        return self._table("prefix_id_to_ids", build)

    def get_id_to_ord_list(self) -> list[int]:
        """By id the code 0 to 255 where the raw piece is one such character or ``<0xNN>``, else -1."""
        id_to_ord = self.tokenizer_model.id_to_ord
        return self._table("ords", lambda: [id_to_ord(idx) for idx in range(self.actual_vocab_size)])

    def get_char_trie(self) -> TrieNode:
        """Trie of all non-empty pieces."""
        return self._table("trie", lambda: build_trie(self.get_id_to_piece_list()))

    def get_char_trie_ci(self) -> TrieNode:
        """Trie of all non-empty pieces in lower case."""
        return self._table("trie_ci", lambda: build_trie(piece.lower() for piece in self.get_id_to_piece_list()))

    def single_id(self, token: str) -> int | None:
        """Id of the token with exactly this text: a special one first."""
        special = self.extended_piece_to_id.get(token)
        return self.get_piece_to_id_dict().get(token) if special is None else special

    def single_token(self, token_id: int) -> torch.Tensor:
        """int64 ``[1, 1]``."""
        return torch.tensor([[token_id]], dtype=torch.long)

    # Inside

    def _check_vocabulary(self, model_dir: Path) -> None:
        """Refuse a tokenizer whose text needs ids that the model does not have.

        Added tokens beyond the model's vocabulary are let pass: published models have them, for modes of use that
        they lack themselves. The model refuses such an id when it is given one.
        """
        ids = self.tokenizer_model.hf_tokenizer.get_vocab(with_added_tokens=False).values()
        largest, size = max(ids, default=-1), self.config.vocab_size
        if size is not None and largest >= size and largest not in self.tokenizer_model.added_tokens():
            raise TokenizerError(
                f"{model_dir}: tokenizer.json has token id {largest}, but config.json has vocab_size {size}; "
                "the two files belong to different models"
            )

    def _role_texts(self) -> dict[str, str]:
        """Texts of the tokens that have a role, by role: what the tokenizer's config says, else what is in use."""
        roles = ("bos_token", "eos_token", "unk_token", "pad_token")
        texts = {role: token_text((self.tokenizer_config_dict or {}).get(role)) for role in roles}
        return {role: text for role in roles if (text := texts[role] or getattr(self, role))}

    def _role_text(self, idx: int | None) -> str:
        return self.extended_id_to_piece.get(idx, "") if idx is not None else ""

    def _encode_row(
        self, text: str, add_bos: bool, add_eos: bool, special: bool, embeddings: Sequence[TextEmbedding]
    ) -> list[int]:
        encode = self.encode_special if special else self.encode_unspecial
        ranges = {embedding.text_alias: embedding.get_ids() for embedding in embeddings}
        ids = _encode_around(_alternation(ranges), text, ranges, encode) if ranges else encode(text)
        if add_bos and self.bos_token_id is not None:
            ids = [self.bos_token_id, *ids]
        if add_eos and self.eos_token_id is not None:
            ids = [*ids, self.eos_token_id]
        return ids

    def _decode_row(self, ids: list[int], decode_special_tokens: bool) -> str:
        special = self.extended_id_to_piece
        if not decode_special_tokens:
            dropped = (self.pad_token_id, self.eos_token_id)
            return self.tokenizer_model.decode([idx for idx in ids if idx not in dropped and 0 <= idx < self._id_limit])
        # Padding that borrows the id of EOS is indistinguishable from it, so neither shows.
        kept = [idx for idx in ids if idx != self.pad_token_id and (0 <= idx < self._id_limit or idx in special)]
        return "".join(
            "".join(special[idx] for idx in run) if is_special else self.tokenizer_model.decode(list(run))
            for is_special, run in groupby(kept, special.__contains__)
        )

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


def _alternation(literals: Iterable[str]) -> re.Pattern[str]:
    """Pattern of one group that matches any of ``literals``, earlier ones first; nothing where there are none."""
    return re.compile("(" + ("|".join(re.escape(literal) for literal in literals if literal) or "(?!)") + ")")


def _encode_around(
    pattern: re.Pattern[str], text: str, literals: Mapping[str, list[int]], encode: Callable[[str], list[int]]
) -> list[int]:
    """Ids of ``text``: those given for each match of ``pattern``, and the encoding of what stands between."""
    parts = (part for part in pattern.split(text) if part)
    return [idx for part in parts for idx in (literals[part] if part in literals else encode(part))]


def _last(ids: list[int]) -> int | None:
    return ids[-1] if ids else None
