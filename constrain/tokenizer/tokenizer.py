"""``ExLlamaV2Tokenizer``: encoding and decoding of batches, special tokens and chats."""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from constrain.arguments import check_text, texts_of
from constrain.errors import TokenizerError
from constrain.tokenizer.chat import ChatTemplate, read_chat_templates
from constrain.tokenizer.plain import PlainText
from constrain.tokenizer.special import TokenizerConfig, token_text
from constrain.tokenizer.vocabulary import TokenizerVocabulary

if TYPE_CHECKING:
    import torch

_LOCK = threading.Lock()


class TextEmbedding(Protocol):
    """Embeddings with token ids of their own, to which a text refers by an alias."""

    @property
    def text_alias(self) -> str: ...
    def get_ids(self) -> list[int]: ...


class ExLlamaV2Tokenizer(TokenizerVocabulary):
    """The tokenizer of a model folder: text to ids, and ids to text.

    The base class :class:`~constrain.tokenizer.vocabulary.TokenizerVocabulary` has the tokens, and tables of them.

    Attributes:
        tokenized_str_cache, max_cached_strings: the cache of :meth:`cached_encode_str`, and its capacity.

    Instances hash by identity and may be shared by threads.
    """

    def __init__(
        self, config: TokenizerConfig, lazy_init: bool = True, force_json: bool = False, force_spm: bool = False
    ) -> None:
        """Read the tokenizer, as :class:`~constrain.tokenizer.vocabulary.TokenizerVocabulary` does."""
        super().__init__(config, lazy_init, force_json, force_spm)
        self.tokenized_str_cache: dict[str, torch.Tensor] = {}
        self.max_cached_strings = 100

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
        """Encode a text, or a batch of texts, to token ids.

        Args:
            text: one text, or a list of texts.
            add_bos, add_eos: add BOS before, EOS after each text, if the model has them.
            encode_special_tokens: encode names of special tokens in the text as these tokens. The backend does so for
                those of ``tokenizer.json`` in any case.
            return_offsets: return position offsets too.
            embeddings: indexed embeddings; their aliases in the text are encoded as their ids.

        Returns:
            int64 ids ``[rows, length]``, short rows padded on the left with ``pad_token_id``; with ``return_offsets``
            also int32 ``[rows]``, minus the number of padding tokens in each row.

        Raises:
            ArgumentError: ``text`` is neither a text nor a list of texts.
        """
        import torch

        texts = texts_of("text", [text] if isinstance(text, str) else text)
        rows = [self._encode_row(row, add_bos, add_eos, encode_special_tokens, embeddings or ()) for row in texts]
        width = max(map(len, rows), default=0)
        padded = [[self.pad_token_id] * (width - len(row)) + row for row in rows]
        ids = torch.tensor(padded, dtype=torch.long).reshape(len(rows), width)
        if not return_offsets:
            return ids
        return ids, torch.tensor([len(row) - width for row in rows], dtype=torch.int)

    def encode_special(self, text: str) -> list[int]:
        """Encode a text, names of special tokens as these tokens."""
        pattern = self._table("special_pattern", lambda: _alternation(self.extended_piece_to_id))
        special = self._table("special_ids", lambda: {each: [idx] for each, idx in self.extended_piece_to_id.items()})
        return _encode_around(pattern, text, special, self.encode_unspecial)

    def encode_unspecial(self, text: str) -> list[int]:
        """Encode a text with the backend alone."""
        return self.tokenizer_model.encode(text)

    def cached_encode_str(self, text: str) -> torch.Tensor:
        """:meth:`encode` with a cache of the last ``max_cached_strings`` texts."""
        with _LOCK:
            if text not in self.tokenized_str_cache:
                while len(self.tokenized_str_cache) >= self.max_cached_strings:
                    del self.tokenized_str_cache[next(iter(self.tokenized_str_cache))]
                self.tokenized_str_cache[text] = self.encode(text)
            return self.tokenized_str_cache[text]

    def num_tokens(self, text: str) -> int:
        """Number of tokens of a text, without BOS and EOS.

        Raises:
            ArgumentError: ``text`` is not a ``str``.
        """
        check_text("text", text)
        return len(self.tokenizer_model.encode(text))

    # Prompts with text of others

    def plain(self, text: str) -> str:
        """Hide names of special tokens in a text that is to be put into a prompt for :meth:`encode_prompt`.

        Without it the text of a document, for example, could end the turn of its user in a chat template.
        """
        return self._plain_text.hide(text)

    def encode_prompt(self, prompt: str, add_bos: bool = False) -> torch.Tensor:
        """Encode a prompt: names of special tokens as these tokens, except in texts of :meth:`plain`.

        Args:
            prompt: a prompt, for example of :meth:`apply_chat_template`.
            add_bos: begin with BOS, if the model has it.

        Returns:
            int64 ids of shape (1, n). Without names of special tokens in the plain texts, the ids are those of the
            whole prompt: tokens may cross the borders of a plain text.

        Raises:
            ArgumentError: ``prompt`` is not a ``str``.
        """
        import torch

        bos = [self.bos_token_id] if add_bos and self.bos_token_id is not None else []
        ids = array("q", [*bos, *self.prompt_ids(prompt)])
        # Of a list, torch would read the ids one by one with Python's lock.
        return torch.frombuffer(ids, dtype=torch.long)[None] if ids else torch.empty((1, 0), dtype=torch.long)

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids of :meth:`encode_prompt` as a list, without a beginning-of-sequence token.

        Raises:
            ArgumentError: ``prompt`` is not a ``str``.
        """
        check_text("prompt", prompt)
        return self._plain_text.encode(prompt)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> torch.Tensor:
        """Render a chat with the model's template and encode it; arguments and errors as :meth:`apply_chat_template`.

        Names of special tokens in messages and tools are plain text. Messages of the assistant may have other added
        tokens, such as ``</think>``, for which templates look in them.

        Returns:
            int64 ids of shape (1, n).
        """
        return self.encode_prompt(
            self.render_chat(messages, add_generation_prompt=add_generation_prompt, tools=tools, **variables)
        )

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """Render a chat as :meth:`apply_chat_template` does, with what :meth:`encode_chat` keeps text hidden from
        :meth:`encode_prompt`.
        """
        hide = self._plain_text.hide_all
        hidden = [hide(message, strict_only=message.get("role") == "assistant") for message in messages]
        return self.apply_chat_template(
            hidden, add_generation_prompt=add_generation_prompt, tools=tools and hide(tools), **variables
        )

    @property
    def _plain_text(self) -> PlainText:
        return self._table("plain_text", lambda: PlainText(self.tokenizer_model, self.extended_piece_to_id))

    # Chat templates

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
        """Render a chat with the model's template.

        :meth:`encode_prompt` encodes the result; templates write BOS themselves. Names of special tokens in messages
        become special tokens, too; :meth:`encode_chat` keeps them text.

        Args:
            messages: each with ``role`` (``"system"``, ``"user"``, ``"assistant"``) and ``content``.
            add_generation_prompt: end with the header of an answer of the model.
            tools: JSON Schemas of functions that the model may call, rendered with the template ``tool_use`` if there
                is one.
            variables: further variables of the template.

        Raises:
            TokenizerError: there is no template, or it is malformed, fails or refuses the messages.
        """
        templates = self.chat_templates
        template = templates.get("tool_use") if tools else None
        template = template or templates.get("default")
        if template is None:
            found = f"no chat template called default, only {', '.join(templates)}" if templates else "no chat template"
            raise TokenizerError(f"{self.config.model_dir}: the model has {found}; give a prompt in place of messages")
        given = {"tools": tools, "documents": None, "add_generation_prompt": add_generation_prompt}
        return template.render(messages, {**self._role_texts(), **given, **variables})

    # Ids to text

    def decode(self, ids: torch.Tensor | list[torch.Tensor], decode_special_tokens: bool = False) -> Any:
        """Decode token ids to text.

        Padding, unused ids, and (without ``decode_special_tokens``) special tokens are skipped.

        Args:
            ids: ``[length]``, ``[rows, length]``, or a list of such tensors.
            decode_special_tokens: decode special tokens to their names.

        Returns:
            A string for one dimension, a list of strings for two (one row too), a list of these for a list.

        Raises:
            TokenizerError: ``ids`` has another type or shape.
        """
        import torch

        if isinstance(ids, list):
            return [self.decode(row, decode_special_tokens) for row in ids]
        if not isinstance(ids, torch.Tensor) or ids.dim() not in (1, 2) or ids.is_floating_point():
            raise TokenizerError("decode takes a tensor of ids, of one or two dimensions, or a list of such tensors")
        if ids.dim() == 2:
            return [self._decode_row(row, decode_special_tokens) for row in ids.tolist()]
        return self._decode_row(ids.tolist(), decode_special_tokens)

    def padding_mask(self, ids: torch.Tensor) -> torch.Tensor:
        """Additive attention mask, float16, shaped as ``ids``: -inf at ``pad_token_id``, else 0."""
        import torch

        return torch.zeros(ids.shape, dtype=torch.half).masked_fill_(ids == self.pad_token_id, -torch.inf)

    def _role_texts(self) -> dict[str, str]:
        """Names of BOS, EOS, unknown and padding tokens, by role: of the tokenizer's config, else those in use."""
        roles = ("bos_token", "eos_token", "unk_token", "pad_token")
        texts = {role: token_text((self.tokenizer_config_dict or {}).get(role)) for role in roles}
        return {role: text for role in roles if (text := texts[role] or getattr(self, role))}

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
        # Padding may have the id of EOS, and then neither is shown.
        visible = [idx for idx in ids if idx != self.pad_token_id and (0 <= idx < self._id_limit or idx in special)]
        return "".join(
            "".join(special[idx] for idx in run) if is_special else self.tokenizer_model.decode(list(run))
            for is_special, run in groupby(visible, special.__contains__)
        )


def _alternation(literals: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern of one group that matches any of ``literals``, the longest first; without any, nothing."""
    longest_first = sorted(filter(None, literals), key=len, reverse=True)
    return re.compile("(" + ("|".join(map(re.escape, longest_first)) or "(?!)") + ")")


def _encode_around(
    pattern: re.Pattern[str], text: str, literals: Mapping[str, list[int]], encode: Callable[[str], list[int]]
) -> list[int]:
    """Encode ``text``: each match of ``pattern`` as the ids in ``literals``, the text between matches by ``encode``."""
    parts = (part for part in pattern.split(text) if part)
    return [idx for part in parts for idx in (literals[part] if part in literals else encode(part))]
