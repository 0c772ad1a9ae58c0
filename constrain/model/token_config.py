"""The part of a ``config.json`` that tokenizers need, which is read without the rest of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from constrain.errors import ConfigError
from constrain.model.config_reader import ConfigReader
from constrain.tokenizer.files import read_json_object

MAX_VOCAB = 1 << 24
_GENERATION = "generation_config.json"


@dataclass(frozen=True)
class TokenConfig:
    """The config of a tokenizer, see :class:`~constrain.tokenizer.special.TokenizerConfig`.

    Attributes:
        model_dir: folder of the model.
        vocab_size: number of logits; ``None``: the folder does not say.
        bos_token_id, eos_token_id, pad_token_id: ids, where ``config.json`` has them.
        generation_config: see :func:`read_generation_config`.
    """

    model_dir: str
    vocab_size: int | None
    bos_token_id: int | None
    eos_token_id: int | None
    pad_token_id: int | None
    generation_config: Mapping[str, Any]

    @classmethod
    def of_folder(cls, folder: str | Path) -> TokenConfig:
        """Read ``config.json`` and ``generation_config.json``, without tensors and without an architecture.

        Raises:
            ConfigError: the folder or ``config.json`` is missing, or a value is malformed or out of bounds.
        """
        path = config_path(Path(folder))
        data = read_json_object(path)
        text = data.get("text_config")
        reader = ConfigReader(path, [data, text if isinstance(text, dict) else {}])
        roles = {role: first_token(reader, role) for role in ("bos_token_id", "eos_token_id", "pad_token_id")}
        size = reader.integer("vocab_size", None, high=MAX_VOCAB)
        return cls(str(folder), size, **roles, generation_config=read_generation_config(Path(folder)))


def config_path(folder: Path) -> Path:
    """Return the ``config.json`` of a model folder.

    Raises:
        ConfigError: there is none.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; models are read from folders, and none is downloaded")
    path = folder / "config.json"
    if not path.is_file():
        raise ConfigError(f"{folder}: no config.json in this folder")
    return path


def read_generation_config(folder: Path) -> dict[str, Any]:
    """Read the ids after which generation ends, ``{"eos_token_id": [...]}``; empty without ``generation_config.json``.

    Raises:
        ConfigError: the file is malformed.
    """
    path = folder / _GENERATION
    if not path.is_file():
        return {}
    return {"eos_token_id": _tokens(ConfigReader(path, [read_json_object(path)]), "eos_token_id")}


def first_token(reader: ConfigReader, key: str) -> int | None:
    """Return the id, or the first of several, of a special token; ``None`` if there is none."""
    ids = _tokens(reader, key)
    return ids[0] if ids and ids[0] >= 0 else None


def _tokens(reader: ConfigReader, key: str) -> list[int] | None:
    value = reader.raw(key, None)
    if value is None:
        return None
    values = value if isinstance(value, list) else [value]
    items = ConfigReader(reader.path, [{str(i): item for i, item in enumerate(values)}], f"{reader.where}{key}/")
    return [items.integer(str(i), low=-1, high=MAX_VOCAB) for i in range(len(values))]
