"""The built-in filters, registered like those of a plugin."""

from __future__ import annotations

from collections.abc import Mapping

from constrain.filters.grammar import ExLlamaV2GrammarFilter
from constrain.filters.hookspecs import FilterFactory, hookimpl
from constrain.filters.json_schema import ExLlamaV2JSONSchemaFilter
from constrain.filters.prefix import ExLlamaV2PrefixFilter
from constrain.filters.regex import ExLlamaV2RegexFilter
from constrain.filters.select import ExLlamaV2SelectFilter


@hookimpl
def constrain_filters() -> Mapping[str, FilterFactory]:
    """Return the built-in filters."""
    return {
        "grammar": ExLlamaV2GrammarFilter,
        "json_schema": ExLlamaV2JSONSchemaFilter,
        "prefix": ExLlamaV2PrefixFilter,
        "regex": ExLlamaV2RegexFilter,
        "select": ExLlamaV2SelectFilter,
    }
