"""Base of :class:`constrain.LLM`: options, and the conversion of prompts into requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias, TypedDict

import torch

from constrain.arguments import check_names
from constrain.completion import (
    Completion,
    Options,
    Pending,
    encode,
    fresh_filters,
    runtime_of,
    submit,
    submit_faithful,
)
from constrain.completion.images import MessageImages, no_images
from constrain.engine.lark import NamedGrammar
from constrain.errors import ArgumentError
from constrain.extract import Calibration, Extractor, Prompt
from constrain.filters.named import created
from constrain.generator.settings import Settings
from constrain.llm.constraints import make_filters
from constrain.llm.contents import with_images
from constrain.model import ExLlamaV2, ExLlamaV2MMEmbedding, ExLlamaV2VisionTower
from constrain.runtime import Runtime
from constrain.tokenizer import ExLlamaV2Tokenizer

#: A conversation, each message with ``role`` and ``content``.
Messages: TypeAlias = Sequence[Mapping[str, Any]]
#: A text to complete, or a conversation to answer.
PromptOrMessages: TypeAlias = "str | Messages"

_CONSTRAINTS = ("json_schema", "regex", "grammar", "grammars", "choices", "prefix")


class GenerateOptions(TypedDict, total=False):
    """Options of :meth:`LLM.generate` and related methods; described there."""

    json_schema: Any
    regex: str | re.Pattern[str] | None
    grammar: str | None
    grammars: Mapping[str, NamedGrammar] | None
    choices: Sequence[str] | None
    prefix: str | Sequence[str] | None
    filters: Sequence[Any]
    max_new_tokens: int
    settings: Settings | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    stop: str | int | Collection[str | int] | None
    seed: int | None
    logprobs: int | None
    timeout: float | None
    priority: int


class BaseLLM:
    """A loaded model and its runtime; converts calls into requests.

    Attributes:
        runtime: the runtime that runs the requests.
        extractor: extracts records.
        images: encodes conversations with images; ``None`` if no vision tower is loaded.
    """

    def __init__(
        self,
        runtime: Any,
        prompt: Prompt | None = None,
        calibration: Calibration | str | Path | None = None,
        tower: ExLlamaV2VisionTower | None = None,
    ) -> None:
        """
        Args:
            runtime: a :class:`~constrain.runtime.Runtime`, or an object with one as its attribute ``runtime``, such as
                a generator.
            prompt: builds the prompt of an extraction from a schema and a text; by default it is made in the form that
                fits the model, see :class:`~constrain.extract.Extractor`.
            calibration: makes the probabilities of extracted values the shares of right values, and doubtful values
                null; or the path of one. By default ``constrain_calibration.json`` in the model's folder, if there.
            tower: the loaded vision tower of the model, for images in messages.

        Raises:
            ArgumentError: an argument is of the wrong type, or the calibration cannot be read.
        """
        self.runtime: Runtime = runtime_of(runtime)
        self.images = MessageImages(tower, self.runtime) if tower else None
        self.extractor = Extractor(self.runtime, prompt, calibration, self.images)

    @property
    def model(self) -> ExLlamaV2:
        """The model."""
        return self.runtime.model

    @property
    def tokenizer(self) -> ExLlamaV2Tokenizer:
        """The tokenizer of the model."""
        return self.runtime.tokenizer

    def submitter(
        self, given: GenerateOptions, copied: bool, together: bool = False
    ) -> Callable[[int, PromptOrMessages], Pending[Completion]]:
        """Compile constraints; return a function that submits a prompt, given its position among several.

        Args:
            given: the options of the call.
            copied: whether each prompt gets copies of the filters.
            together: whether the timeout is that of all prompts together, and counts from now.
        """
        options, filters = self._prepared(given, copied)
        options = replace(options, since=monotonic()) if together else options

        def submit_one(number: int, ask: PromptOrMessages) -> Pending[Completion]:
            own = fresh_filters(filters) if copied else filters
            ids, embeddings = self.encode_prompt(ask)
            numbered = replace(options.numbered(number), embeddings=embeddings)
            return submit(self.runtime, ids, own, numbered, partial(replace, index=number))

        return submit_one

    def submit_faithful(self, given: GenerateOptions, n: int, ask: PromptOrMessages) -> Pending[list[Completion]]:
        """Submit a prompt for ``n`` weighted outputs."""
        options, filters = self._prepared(given, copied=True)
        ids, embeddings = self.encode_prompt(ask)
        return submit_faithful(self.runtime, ids, filters, replace(options, particles=n, embeddings=embeddings))

    def _prepared(self, given: GenerateOptions, copied: bool) -> tuple[Options, list[Any]]:
        """Return the options, and the compiled constraints."""
        if "faithful" in given:
            raise ArgumentError("faithful=True is for generate and agenerate: outputs get their weights together")
        check_names(given, GenerateOptions.__annotations__)
        named: dict[str, Any] = {name: value for name, value in given.items() if name in _CONSTRAINTS}
        others: dict[str, Any] = {name: value for name, value in given.items() if name not in _CONSTRAINTS}
        options = Options(**others)
        further = created(options.filters, self.model, self.tokenizer)
        filters = [*further, *make_filters(self.model, self.tokenizer, **named)]
        if copied:
            fresh_filters(filters)  # fail early if a filter cannot be copied
        return options, filters

    def encode_prompt(self, ask: PromptOrMessages) -> tuple[torch.Tensor, Sequence[ExLlamaV2MMEmbedding]]:
        """Encode a prompt, or a conversation with the chat template.

        Returns:
            int64 ids of shape (1, n), and the embeddings of images that they refer to.
        """
        if not isinstance(ask, (list, tuple)) or not all(isinstance(each, Mapping) for each in ask):
            return encode(self.tokenizer, ask), ()
        messages, images = with_images(ask)
        if not images:
            return self.tokenizer.encode_chat(messages), ()
        if self.images is None:
            raise ArgumentError(f"messages have images, but {no_images(self.model)}")
        return self.images.encode(messages, images)


def one_of(prompt: str | None, messages: Messages | None) -> PromptOrMessages:
    """Return the prompt, or the messages as a list.

    Raises:
        ArgumentError: both are given or none, or the messages are not a list of dicts.
    """
    if messages is None:
        if prompt is None:
            raise ArgumentError("give a prompt, or messages")
        return prompt
    if prompt is not None:
        raise ArgumentError("give a prompt or messages, not both")
    if not isinstance(messages, (list, tuple)) or not all(isinstance(each, Mapping) for each in messages):
        raise ArgumentError("messages must be a list of dicts, each with role and content")
    return list(messages)
