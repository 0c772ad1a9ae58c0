from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from constrain.compat.exllamav2 import install, uninstall


@pytest.fixture
def alias() -> Iterator[None]:
    """exllamav2 can be imported."""
    install()
    yield
    uninstall()


@pytest.fixture(scope="module")
def loaded(tiny_dir: Path) -> Iterator[Any]:
    """A model, a cache that fits the dynamic generator, and a tokenizer, made as programs for exllamav2 make them."""
    install()
    from exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer

    config = ExLlamaV2Config(str(tiny_dir))
    config.max_seq_len = 2048
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, max_seq_len=2048, lazy=True)
    model.load_autosplit(cache, progress=False)
    yield SimpleNamespace(config=config, model=model, cache=cache, tokenizer=ExLlamaV2Tokenizer(config))
    uninstall()
