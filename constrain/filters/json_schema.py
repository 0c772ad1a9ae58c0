"""A filter for JSON documents that match a JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from constrain.engine import compile_json_schema, grammar_cache
from constrain.filters.engine import ExLlamaV2EngineFilter, vocabulary_of

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2
    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2JSONSchemaFilter(ExLlamaV2EngineFilter):
    """Admits the JSON documents that match a schema.

    Args:
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        schema: the schema, as parsed JSON.
        options: those of :func:`constrain.engine.compile_json_schema` (``whitespace``, ``property_order``, ...).

    Raises:
        GrammarError: the schema does not compile.
    """

    def __init__(
        self,
        model: ExLlamaV2,
        tokenizer: ExLlamaV2Tokenizer,
        schema: dict[str, Any] | bool,
        **options: Any,
    ) -> None:
        vocabulary = vocabulary_of(tokenizer)
        super().__init__(model, tokenizer, grammar_cache.compile(compile_json_schema, schema, vocabulary, **options))
