"""Names of filters in messages."""

from __future__ import annotations

from typing import Any

from constrain.filters.engine_filter import ExLlamaV2EngineFilter


def name_of(target: Any) -> str:
    """Return what messages call a filter: the argument that it was made for, or else its class."""
    argument = target.argument if isinstance(target, ExLlamaV2EngineFilter) else ""
    return argument or type(target).__name__
