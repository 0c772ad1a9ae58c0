"""Documents in, records out: the prompt, the constraint, one completion, and the reading of what was written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from constrain.arguments import check_text, check_type, refused
from constrain.engine import CompiledGrammar, compile_json_schema, grammar_cache
from constrain.errors import ExtractionError, GenerationError
from constrain.extract.completion import FinishReason, complete
from constrain.extract.prompt import build_prompt
from constrain.extract.target import Target
from constrain.filters.engine import ExLlamaV2EngineFilter, vocabulary_of
from constrain.generator import ExLlamaV2BaseGenerator, ExLlamaV2Sampler

T = TypeVar("T")

#: The name by which ``x-verbatim`` refers to the document.
SOURCE = "text"

#: Makes the prompt from a schema and a text.
Prompt: TypeAlias = Callable[[Mapping[str, Any], str], str]


@dataclass(frozen=True)
class Extraction(Generic[T]):
    """A record that was extracted from a text.

    Attributes:
        value: the record as the type asked for; the same as ``json`` where a dict schema was given.
        json: the record as parsed JSON.
        text: the record as the model wrote it.
        tokens: its token ids, without the end-of-sequence token.
        finish_reason: ``"stop"``, or ``"length"`` where the tokens ran out just when the record was complete.
    """

    value: T
    json: Any
    text: str
    tokens: list[int]
    finish_reason: FinishReason


class Extractor:
    """Extracts records with a generator.

    Compiled schemas are kept in ``constrain.engine.grammar_cache``: many documents under one schema pay for it once. A
    schema that takes strings from the document, with ``"x-verbatim": {"source": "text"}``, is compiled for each.

    Args:
        generator: holds the model, the tokenizer and the cache.
        prompt: makes the prompt; the default is the form that the built-in model was trained on.
    """

    def __init__(self, generator: ExLlamaV2BaseGenerator, prompt: Prompt = build_prompt) -> None:
        check_type("generator", generator, ExLlamaV2BaseGenerator, "an ExLlamaV2BaseGenerator")
        if not callable(prompt):
            raise refused("prompt", prompt, "a function from a schema and a text to a prompt")
        self.generator = generator
        self.prompt = prompt

    def extract(
        self,
        target: Target[T],
        text: str,
        *,
        max_new_tokens: int = 1024,
        settings: ExLlamaV2Sampler.Settings | None = None,
        seed: int | None = None,
    ) -> Extraction[T]:
        """Extract one record.

        Args:
            target: what the record has to be.
            text: the document.
            max_new_tokens: upper bound for the record; lowered to what the model's context still takes.
            settings: how tokens are drawn; the most likely ones by default.
            seed: seeds the draw.

        Raises:
            ArgumentError: an argument is of the wrong type, or out of its bounds.
            SchemaError: the schema does not compile.
            ExtractionError: the text is too long, or the record was not complete when the tokens ran out.
        """
        check_type("target", target, Target, "a Target, which Target.of makes of a schema or a type")
        check_text("text", text)
        tokenizer = self.generator.tokenizer
        constraint = ExLlamaV2EngineFilter(self.generator.model, tokenizer, self._grammar(target.schema, text))
        try:
            written = complete(
                self.generator,
                self.prompt(target.schema, text),
                filters=[constraint],
                max_new_tokens=max_new_tokens,
                settings=ExLlamaV2Sampler.Settings.greedy() if settings is None else settings,
                seed=seed,
            )
        except GenerationError as error:
            raise ExtractionError(str(error)) from error
        try:
            document, value = target.read(written.text)
        except ExtractionError as error:
            reason = error.reason
            if written.finish_reason == "length":
                reason = f"the record was not complete after {len(written.tokens)} tokens; "
                full = len(written.tokens) < max_new_tokens
                reason += "the context of the model is full" if full else "raise max_new_tokens"
            raise ExtractionError(reason, written.text, written.finish_reason) from error.__cause__
        return Extraction(value, document, written.text, written.tokens, written.finish_reason)

    def _grammar(self, schema: dict[str, Any], text: str) -> CompiledGrammar:
        vocabulary = vocabulary_of(self.generator.tokenizer)
        # The order of the schema and the spacing of json.dumps: what models write anyway, and the fewest choices.
        if '"x-verbatim"' in json.dumps(schema):
            return compile_json_schema(
                schema, vocabulary, whitespace="single", property_order="schema", sources={SOURCE: text}
            )
        return grammar_cache.compile(
            compile_json_schema, schema, vocabulary, whitespace="single", property_order="schema"
        )
