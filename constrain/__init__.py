"""Constrained decoding: the next token of a language model stays inside the language that you give.

Names are imported on first use, so that ``import constrain.engine`` costs neither torch nor a model.
"""

from __future__ import annotations

import logging
from importlib.machinery import PathFinder
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from constrain.lazy import lazy_names

if TYPE_CHECKING:
    from constrain._core import __version__
    from constrain.completion import Completion, Failure
    from constrain.extract import Evidence, Extraction, Quote
    from constrain.generator import (
        ExLlamaV2DynamicGenerator,
        ExLlamaV2DynamicGeneratorAsync,
        ExLlamaV2DynamicJob,
        ExLlamaV2DynamicJobAsync,
        ExLlamaV2StreamingGenerator,
    )
    from constrain.llm import LLM, load
    from constrain.model import (
        ExLlamaV2,
        ExLlamaV2Cache,
        ExLlamaV2Cache_8bit,
        ExLlamaV2Cache_Q4,
        ExLlamaV2Cache_Q6,
        ExLlamaV2Cache_Q8,
        ExLlamaV2Cache_TP,
        ExLlamaV2CacheBase,
        ExLlamaV2Config,
        ExLlamaV2Lora,
    )
    from constrain.tokenizer import ExLlamaV2Tokenizer

__all__ = [
    "LLM",
    "Completion",
    "Evidence",
    "ExLlamaV2",
    "ExLlamaV2Cache",
    "ExLlamaV2CacheBase",
    "ExLlamaV2Cache_8bit",
    "ExLlamaV2Cache_Q4",
    "ExLlamaV2Cache_Q6",
    "ExLlamaV2Cache_Q8",
    "ExLlamaV2Cache_TP",
    "ExLlamaV2Config",
    "ExLlamaV2DynamicGenerator",
    "ExLlamaV2DynamicGeneratorAsync",
    "ExLlamaV2DynamicJob",
    "ExLlamaV2DynamicJobAsync",
    "ExLlamaV2Lora",
    "ExLlamaV2StreamingGenerator",
    "ExLlamaV2Tokenizer",
    "Extraction",
    "Failure",
    "Quote",
    "__version__",
    "load",
]

_MODULES = {
    "constrain._core": ["__version__"],
    "constrain.completion": ["Completion", "Failure"],
    "constrain.extract": ["Evidence", "Extraction", "Quote"],
    "constrain.generator": [
        "ExLlamaV2DynamicGenerator",
        "ExLlamaV2DynamicGeneratorAsync",
        "ExLlamaV2DynamicJob",
        "ExLlamaV2DynamicJobAsync",
        "ExLlamaV2StreamingGenerator",
    ],
    "constrain.llm": ["LLM", "load"],
    "constrain.model": [
        "ExLlamaV2",
        "ExLlamaV2Cache",
        "ExLlamaV2CacheBase",
        "ExLlamaV2Cache_8bit",
        "ExLlamaV2Cache_Q4",
        "ExLlamaV2Cache_Q6",
        "ExLlamaV2Cache_Q8",
        "ExLlamaV2Cache_TP",
        "ExLlamaV2Config",
        "ExLlamaV2Lora",
    ],
    "constrain.tokenizer": ["ExLlamaV2Tokenizer"],
}

# Python puts the working directory first. In the root of the repository that makes ./constrain the package, while an
# installed wheel keeps the compiled modules in its own folder. Searching that folder second lets the sources at hand
# run with the installed compiled modules. An editable install needs nothing: its finder already knows both folders.
if PathFinder.find_spec(f"{__name__}._core", __path__) is None:
    __path__ = extend_path(__path__, __name__)


# Events are logged under the names of the modules; a program that wants to see them adds a handler of its own.
logging.getLogger(__name__).addHandler(logging.NullHandler())


_load, __dir__ = lazy_names(__name__, _MODULES)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name not in _MODULES:
            raise
        message = f"constrain.{name} is not part of constrain-lm-engine: install constrain-lm"
        raise ImportError(message) from error
