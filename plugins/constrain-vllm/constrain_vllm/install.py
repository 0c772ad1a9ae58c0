"""The places in vLLM where a back end is chosen. vLLM has no registry of them.

Requests for ``auto`` and ``guidance`` go to constrain; ``xgrammar``, ``outlines`` and ``lm-format-enforcer`` keep what
they name. All of one engine go to one back end, since vLLM creates only one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams
from vllm.v1 import structured_output
from vllm.v1.structured_output import StructuredOutputManager, backend_guidance
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

from constrain.integrations.serving import ENGINE_ERRORS
from constrain_vllm.backend import ConstrainBackend
from constrain_vllm.grammar import ConstrainGrammar
from constrain_vllm.validation import check_request

_log = logging.getLogger(__name__)

#: The name that constrain has within vLLM, and those of the configuration that lead to it.
NAME = "guidance"
NAMES = ("auto", NAME)


def install() -> None:
    """Put constrain in place; without effect from the second call on."""
    if structured_output.GuidanceBackend is ConstrainBackend:
        return
    StructuredOutputBackend.register(ConstrainBackend)
    StructuredOutputGrammar.register(ConstrainGrammar)
    structured_output.GuidanceBackend = backend_guidance.GuidanceBackend = ConstrainBackend
    backend_guidance.validate_guidance_grammar = _validated_later
    SamplingParams._validate_structured_outputs = _validating(SamplingParams._validate_structured_outputs)
    StructuredOutputManager._create_grammar = _with_begin(StructuredOutputManager._create_grammar)
    StructuredOutputManager._get_constraint_bounds = _noting_thoughts(StructuredOutputManager._get_constraint_bounds)
    _log.info("structured outputs of the back ends %s are constrained by constrain", " and ".join(NAMES))


def _validated_later(*args: Any, **kwargs: Any) -> None:
    """In the place of guidance's own check."""


def _validating(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def validate(params: Any, model_config: Any, config: Any, tokenizer: Any) -> None:
        if config is None or params.structured_outputs is None or config.backend not in NAMES:
            original(params, model_config, config, tokenizer)
            return
        original(params, model_config, replace(config, backend=NAME), tokenizer)
        params.structured_outputs._backend_was_auto = config.backend == "auto"
        try:
            check_request(params, model_config, config, tokenizer)
        except ENGINE_ERRORS as error:
            raise VLLMValidationError(str(error) or type(error).__name__) from error

    return validate


def _with_begin(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def create_grammar(manager: Any, request: Any) -> Any:
        grammar = original(manager, request)
        if isinstance(grammar, ConstrainGrammar):
            grammar.begin(request, manager.vllm_config.model_config.max_model_len)
        return grammar

    return create_grammar


def _noting_thoughts(original: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the grammar how many tokens of a draft are thoughts, which vLLM divides from what the grammar is fed."""

    @wraps(original)
    def bounds(manager: Any, request: Any, spec_tokens: Any, spec_tokens_committed: bool = False) -> Any:
        found = original(manager, request, spec_tokens, spec_tokens_committed)
        grammar = request.structured_output_request.grammar
        if isinstance(grammar, ConstrainGrammar):
            drafted = 0 if spec_tokens_committed else len(spec_tokens)
            grammar.num_drafted_thoughts = min(found.grammar_start, drafted)
        return found

    return bounds
