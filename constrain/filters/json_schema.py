"""A filter for JSON documents that match a JSON Schema: compiled here, its mask is that of the base class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from constrain.engine import Limits, compile_json_schema, grammar_cache
from constrain.engine.json_schema import FormatPolicy, IntegerPolicy, PropertyOrder, WhitespacePolicy
from constrain.filters.engine_filter import ExLlamaV2EngineFilter
from constrain.filters.vocabularies import vocabulary_of

if TYPE_CHECKING:
    from referencing import Registry

    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2JSONSchemaFilter(ExLlamaV2EngineFilter):
    """Restricts the output to the JSON documents that match a schema.

    Args:
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        schema: the schema, as parsed JSON.
        integers: as for :func:`constrain.engine.compile_json_schema`, but plain by default, since programs that read
            the output expect integers.
        whitespace, property_order, lenient, formats, registry, sources, limits: as for
            :func:`constrain.engine.compile_json_schema`.

    Raises:
        GrammarError: the schema does not compile.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: ExLlamaV2Tokenizer,
        schema: dict[str, Any] | bool,
        *,
        whitespace: WhitespacePolicy = "bounded",
        property_order: PropertyOrder = "any",
        integers: IntegerPolicy = "plain",
        lenient: bool = False,
        formats: FormatPolicy = "asserted",
        registry: Registry[Any] | None = None,
        sources: Mapping[str, str] | None = None,
        limits: Limits = Limits(),
    ) -> None:
        compiled = grammar_cache.compile(
            compile_json_schema,
            schema,
            vocabulary_of(tokenizer),
            whitespace=whitespace,
            property_order=property_order,
            integers=integers,
            lenient=lenient,
            formats=formats,
            registry=registry,
            sources=sources,
            limits=limits,
        )
        super().__init__(model, tokenizer, compiled)
