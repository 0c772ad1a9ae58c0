"""The part of a config that tokenizers need: read alone, it has the values of the whole config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from constrain.errors import ConfigError
from constrain.model import ExLlamaV2Config
from constrain.model.token_config import TokenConfig

FIELDS = ("model_dir", "vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", "generation_config")


def check(folder: Path) -> TokenConfig:
    whole, found = ExLlamaV2Config(folder), TokenConfig.of_folder(folder)
    assert {name: getattr(found, name) for name in FIELDS} == {name: getattr(whole, name) for name in FIELDS}
    return found


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_values_are_those_of_the_whole_config(name: str, checkpoint: Callable[[str], Any]) -> None:
    """A model with a vision tower has them in the config of its text model."""
    assert check(checkpoint(name).folder).vocab_size


def test_ids_of_several_end_tokens(llama_copy: Any) -> None:
    llama_copy.config |= {"eos_token_id": [5, 6], "pad_token_id": -1}
    (llama_copy.folder / "generation_config.json").write_text('{"eos_token_id": [6, 7]}')
    found = check(llama_copy.write())
    assert (found.eos_token_id, found.pad_token_id) == (5, None)
    assert found.generation_config == {"eos_token_id": [6, 7]}


def test_models_that_cannot_be_loaded_have_a_tokenizer(llama_copy: Any) -> None:
    llama_copy.config |= {"architectures": ["Unheard"], "eos_token_id": "2"}
    del llama_copy.config["vocab_size"]
    with pytest.raises(ConfigError, match=r"config\.json: eos_token_id/0"):
        TokenConfig.of_folder(llama_copy.write())
    llama_copy.config["eos_token_id"] = 2
    found = TokenConfig.of_folder(llama_copy.write())
    assert (found.vocab_size, found.eos_token_id) == (None, 2)
