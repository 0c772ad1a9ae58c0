"""Special tokens, and the ids of BOS, EOS and padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from constrain.errors import TokenizerError
from constrain.tokenizer.backend import ExLlamaV2TokenizerHF
from constrain.tokenizer.files import read_json_object

MAX_TOKEN_ID = 1 << 24
"""Largest id that a file may declare; tables are indexed by id, so it bounds memory."""

_DEFAULT_ROLES = {"bos_token": 1, "eos_token": 2}


class TokenizerConfig(Protocol):
    """The interface that a tokenizer needs of a model's config."""

    @property
    def model_dir(self) -> str | None: ...
    @property
    def vocab_size(self) -> int | None: ...
    @property
    def bos_token_id(self) -> int | None: ...
    @property
    def eos_token_id(self) -> int | None: ...
    @property
    def pad_token_id(self) -> int | None: ...


@dataclass
class AddedVocabulary:
    """Added tokens that the backend does not decode to their text.

    Attributes:
        special: id to name of special tokens.
        hidden: id to text of other tokens.
    """

    special: dict[int, str] = field(default_factory=dict)
    hidden: dict[int, str] = field(default_factory=dict)


def read_added_vocabulary(
    model_dir: Path, backend: ExLlamaV2TokenizerHF, settings: Mapping[str, Any] | None
) -> AddedVocabulary:
    """Read the added tokens of ``tokenizer.json``, ``added_tokens.json`` and ``tokenizer_config.json``, in order."""
    added = AddedVocabulary()
    for idx, token in backend.added_tokens().items():
        if token.special:
            added.special[idx] = token.content
        elif backend.decode([idx]) != token.content:
            added.hidden[idx] = token.content

    path = model_dir / "added_tokens.json"
    if path.is_file():
        for text, idx in read_json_object(path, TokenizerError).items():
            added.special.setdefault(_checked_id(idx, path), text)

    path = model_dir / "tokenizer_config.json"
    decoder = (settings or {}).get("added_tokens_decoder")
    for key, entry in decoder.items() if isinstance(decoder, dict) else ():
        literal = token_text(entry)
        if literal and isinstance(entry, dict) and entry.get("special"):
            added.special.setdefault(_checked_id(key, path), literal)
    return added


def find_role(
    role: str, configured: int | None, backend: ExLlamaV2TokenizerHF, settings: Mapping[str, Any] | None
) -> int | None:
    """Find the id of ``"bos_token"`` or ``"eos_token"``: of the model's config, the tokenizer's, or a default."""
    if configured is not None:
        return configured
    if settings is None or role not in settings:
        return _DEFAULT_ROLES[role]
    return backend.piece_to_id(token_text(settings[role]))


def find_pad(
    configured: int | None,
    backend: ExLlamaV2TokenizerHF,
    settings: Mapping[str, Any] | None,
    bos: int | None,
    eos: int | None,
) -> int:
    """Find the id of padding: one configured for it, else EOS if that is not BOS too, else -1."""
    if configured is not None:
        return configured
    named = backend.piece_to_id(token_text((settings or {}).get("pad_token")))
    if named is not None:
        return named
    conventional = backend.piece_to_id("<pad>")
    if conventional is not None:
        return conventional
    return eos if eos is not None and eos != bos else -1


def token_text(entry: object) -> str | None:
    """Return the text of a token in a config, which is a string or an object with ``content``."""
    text = entry.get("content") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else None


def _checked_id(value: object, path: Path) -> int:
    try:
        idx = int(value) if isinstance(value, (int, str)) else -1
    except ValueError:
        idx = -1
    if not 0 <= idx <= MAX_TOKEN_ID:
        raise TokenizerError(f"{path}: {value!r} is not a token id")
    return idx
