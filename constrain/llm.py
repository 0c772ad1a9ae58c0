"""A model in one object: text, choices and typed records from a folder of weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from constrain.arguments import texts_of
from constrain.engine import compile_choices, grammar_cache
from constrain.engine.lark import NamedGrammar
from constrain.errors import GenerationError, GrammarError
from constrain.extract import Completion, Extraction, Extractor, Prompt, Target, build_prompt, complete
from constrain.filters import (
    ExLlamaV2EngineFilter,
    ExLlamaV2GrammarFilter,
    ExLlamaV2JSONSchemaFilter,
    ExLlamaV2PrefixFilter,
    ExLlamaV2RegexFilter,
)
from constrain.filters.combined import filters_of
from constrain.filters.engine import vocabulary_of
from constrain.generator import ExLlamaV2BaseGenerator, ExLlamaV2Sampler
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config
from constrain.tokenizer import ExLlamaV2Tokenizer

T = TypeVar("T")

#: Context that :func:`load` reserves memory for where it is not told: many models allow far more than most texts need.
DEFAULT_CONTEXT = 8192


def load(path: str | Path | None = None, *, max_seq_len: int | None = None, prompt: Prompt = build_prompt) -> LLM:
    """Load a model, onto the GPU where there is one.

    Args:
        path: folder of a model (``config.json``, ``tokenizer.json``, ``*.safetensors``); the built-in model if omitted.
        max_seq_len: longest prompt and answer together, in tokens, for which memory is reserved; by default what the
            model allows, and no more than 8192.
        prompt: makes the prompt of an extraction from a schema and a text.

    Raises:
        ModelError: the folder cannot be used, or ``max_seq_len`` not be had; says which file, tensor or setting is at
            fault.
        ArgumentError: an argument is of the wrong type.
    """
    model, tokenizer = load_model(path, max_seq_len)
    return LLM(ExLlamaV2BaseGenerator(model, ExLlamaV2Cache(model), tokenizer), prompt)


def load_model(path: str | Path | None = None, max_seq_len: int | None = None) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """Load a model and its tokenizer, for a generator of one's own; arguments and errors as for :func:`load`."""
    from constrain.demo import model_dir

    config = ExLlamaV2Config(model_dir() if path is None else path)
    config.max_seq_len = min(config.max_seq_len, DEFAULT_CONTEXT) if max_seq_len is None else max_seq_len
    tokenizer = ExLlamaV2Tokenizer(config)
    model = ExLlamaV2(config)
    model.load()
    return model, tokenizer


class LLM:
    """A loaded model; see :func:`load`.

    Not to be shared by threads: every call uses the one cache.

    Attributes:
        generator: the generator underneath, which holds model, cache and tokenizer.
        extractor: what :meth:`extract` calls.
    """

    def __init__(self, generator: ExLlamaV2BaseGenerator, prompt: Prompt = build_prompt) -> None:
        self.generator = generator
        self.extractor = Extractor(generator, prompt)

    @property
    def model(self) -> ExLlamaV2:
        """The model."""
        return self.generator.model

    @property
    def tokenizer(self) -> ExLlamaV2Tokenizer:
        """Its tokenizer."""
        return self.generator.tokenizer

    def generate(
        self,
        prompt: str,
        *,
        json_schema: Any = None,
        regex: str | re.Pattern[str] | None = None,
        grammar: str | None = None,
        grammars: Mapping[str, NamedGrammar] | None = None,
        choices: Sequence[str] | None = None,
        prefix: str | Sequence[str] | None = None,
        filters: Sequence[Any] = (),
        max_new_tokens: int = 256,
        settings: ExLlamaV2Sampler.Settings | None = None,
        seed: int | None = None,
    ) -> Completion:
        """Continue a prompt. Where several constraints are given, all of them hold.

        Args:
            prompt: the text to continue.
            json_schema: a JSON Schema, or a type (see :meth:`extract`); the text is a document that matches it.
            regex: a regular expression that matches the whole text, as text or compiled.
            grammar: a Lark grammar whose rule ``start`` derives the text.
            grammars: further grammars, which ``@name`` stands for in ``grammar``; see
                :func:`~constrain.engine.compile_lark`.
            choices: texts, one of which is written.
            prefix: a string, or several of which one is, that the text begins with.
            filters: further filters, for example of :func:`constrain.filters.create`.
            max_new_tokens: upper bound; lowered to what the model's context still takes.
            settings: how tokens are drawn; those of ``ExLlamaV2Sampler.Settings()`` by default.
            seed: seeds the draw.

        Raises:
            ArgumentError: an argument is of the wrong type, or out of its bounds.
            GrammarError: a constraint does not compile, or there are ``grammars`` and no ``grammar``.
            GenerationError: the prompt leaves no room in the context.
            FilterError: the constraints, taken together, allow nothing, or a filter failed.
        """
        constraints = make_filters(
            self.model,
            self.tokenizer,
            json_schema=json_schema,
            regex=regex,
            grammar=grammar,
            grammars=grammars,
            choices=choices,
            prefix=prefix,
        )
        return complete(
            self.generator,
            prompt,
            filters=[*filters_of(filters), *constraints],
            max_new_tokens=max_new_tokens,
            settings=ExLlamaV2Sampler.Settings() if settings is None else settings,
            seed=seed,
        )

    @overload
    def extract(
        self,
        schema: type[T] | Target[T],
        text: str,
        *,
        max_new_tokens: int = ...,
        settings: ExLlamaV2Sampler.Settings | None = ...,
        seed: int | None = ...,
    ) -> Extraction[T]: ...

    @overload
    def extract(
        self,
        schema: Any,
        text: str,
        *,
        max_new_tokens: int = ...,
        settings: ExLlamaV2Sampler.Settings | None = ...,
        seed: int | None = ...,
    ) -> Extraction[Any]: ...

    def extract(
        self,
        schema: Any,
        text: str,
        *,
        max_new_tokens: int = 1024,
        settings: ExLlamaV2Sampler.Settings | None = None,
        seed: int | None = None,
    ) -> Extraction[Any]:
        """Extract a record from a text.

        Args:
            schema: a JSON Schema as a dict, or any type that pydantic can read from JSON: a model, a dataclass, a
                TypedDict, a Literal, an Enum, a union, ``list[...]`` and so on.
            text: the document.
            max_new_tokens: upper bound for the record; lowered to what the model's context still takes.
            settings: how tokens are drawn; the most likely ones by default.
            seed: seeds the draw.

        Raises:
            ArgumentError: another argument is of the wrong type, or out of its bounds.
            SchemaError: the schema is not valid, or cannot be enforced; says where.
            ExtractionError: the text is too long, or the record was not complete when the tokens ran out.
        """
        return self.extractor.extract(
            Target.of(schema), text, max_new_tokens=max_new_tokens, settings=settings, seed=seed
        )

    def choose(self, prompt: str, options: Sequence[str]) -> str:
        """Return the option that the model continues the prompt with, taking the most likely token at each step.

        Raises:
            ArgumentError: the prompt is no text.
            GrammarError: there is no option, or an empty one, or a text in place of a list.
            GenerationError: the prompt leaves no room in the context.
        """
        texts = texts_of("options", options, GrammarError)
        written = complete(
            self.generator,
            prompt,
            filters=make_filters(self.model, self.tokenizer, choices=texts),
            # An option may be spelt in more tokens than the tokenizer would use, but not in more than it has bytes.
            max_new_tokens=1 + max((len(text.encode()) for text in texts), default=0),
            settings=ExLlamaV2Sampler.Settings.greedy(),
        )
        if written.text not in texts:
            raise GenerationError(f"the context ended before an option was complete: {written.text!r}")
        return written.text


def make_filters(
    model: ExLlamaV2,
    tokenizer: ExLlamaV2Tokenizer,
    *,
    json_schema: Any = None,
    regex: str | re.Pattern[str] | None = None,
    grammar: str | None = None,
    grammars: Mapping[str, NamedGrammar] | None = None,
    choices: Sequence[str] | None = None,
    prefix: str | Sequence[str] | None = None,
) -> list[ExLlamaV2EngineFilter]:
    """A filter for each constraint that is given; arguments and errors as for :meth:`LLM.generate`."""
    if grammars and grammar is None:
        raise GrammarError("grammars are those that @name stands for in grammar, which is missing")
    filters: list[ExLlamaV2EngineFilter] = []
    if json_schema is not None:
        filters.append(ExLlamaV2JSONSchemaFilter(model, tokenizer, Target.of(json_schema).schema))
    if regex is not None:
        filters.append(ExLlamaV2RegexFilter(model, tokenizer, regex))
    if grammar is not None:
        filters.append(ExLlamaV2GrammarFilter(model, tokenizer, grammar, grammars=grammars))
    if choices is not None:
        compiled = grammar_cache.compile(
            compile_choices, texts_of("choices", choices, GrammarError), vocabulary_of(tokenizer)
        )
        filters.append(ExLlamaV2EngineFilter(model, tokenizer, compiled))
    if prefix is not None:
        filters.append(ExLlamaV2PrefixFilter(model, tokenizer, prefix))
    return filters
