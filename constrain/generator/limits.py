"""Validation of generator arguments."""

from __future__ import annotations

import threading

from constrain.arguments import check_type, refused
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase
from constrain.tokenizer import ExLlamaV2Tokenizer


def check_parts(model: ExLlamaV2, cache: ExLlamaV2CacheBase, tokenizer: ExLlamaV2Tokenizer) -> None:
    """Raise :class:`ArgumentError` if the model, cache or tokenizer is of the wrong type."""
    check_type("model", model, ExLlamaV2, "an ExLlamaV2")
    check_type("cache", cache, ExLlamaV2CacheBase, "an ExLlamaV2Cache")
    check_type("tokenizer", tokenizer, ExLlamaV2Tokenizer, "an ExLlamaV2Tokenizer")


def check_event(event: threading.Event | None) -> None:
    """Raise :class:`ArgumentError` if ``event`` lacks ``is_set`` or ``clear``; any class that has both is accepted."""
    if event is not None and not (hasattr(event, "is_set") and hasattr(event, "clear")):
        raise refused("abort_event", event, "a threading.Event")
