"""Filters: constraints on the next token, built in or from plugins, and the protocol that the runtime uses."""

from constrain.filters.base import ExLlamaV2Filter
from constrain.filters.combined import combine
from constrain.filters.constraint import Constraint
from constrain.filters.engine_filter import ExLlamaV2EngineFilter
from constrain.filters.grammar import ExLlamaV2GrammarFilter
from constrain.filters.hookspecs import hookimpl
from constrain.filters.json_schema import ExLlamaV2JSONSchemaFilter
from constrain.filters.manager import BrokenPlugin, FilterInfo, FilterManager, available, broken, create, find
from constrain.filters.named import NamedFilter
from constrain.filters.prefix import ExLlamaV2PrefixFilter
from constrain.filters.regex import ExLlamaV2RegexFilter
from constrain.filters.select import ExLlamaV2SelectFilter

__all__ = [
    "BrokenPlugin",
    "Constraint",
    "ExLlamaV2EngineFilter",
    "ExLlamaV2Filter",
    "ExLlamaV2GrammarFilter",
    "ExLlamaV2JSONSchemaFilter",
    "ExLlamaV2PrefixFilter",
    "ExLlamaV2RegexFilter",
    "ExLlamaV2SelectFilter",
    "FilterInfo",
    "FilterManager",
    "NamedFilter",
    "available",
    "broken",
    "combine",
    "create",
    "find",
    "hookimpl",
]
