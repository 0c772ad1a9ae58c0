"""Checks of a request before it reaches the engine, so that its mistakes are answered with status 400."""

from __future__ import annotations

from typing import Any

from constrain.errors import BudgetError, ConstrainError
from constrain_vllm.backend import compile_request, model_vocabulary


def check_request(params: Any, model_config: Any, config: Any, tokenizer: Any) -> None:
    """Compile the constraint of a request, and compare its shortest output with ``max_tokens``.

    Args:
        params: vLLM's ``SamplingParams``, with ``structured_outputs``.
        model_config: its ``ModelConfig``.
        config: its ``StructuredOutputsConfig``.
        tokenizer: the tokenizer of the model.

    Raises:
        ConstrainError: the constraint cannot be enforced, or not within ``max_tokens``.
    """
    from vllm.v1.structured_output.request import get_structured_output_key

    _check_options(params.structured_outputs, config)
    vocabulary = model_vocabulary(model_config, tokenizer, model_config.get_vocab_size())
    grammar = compile_request(config, *get_structured_output_key(params.structured_outputs), vocabulary)
    needed = grammar.matcher().min_tokens()
    if params.max_tokens is not None and params.max_tokens < needed:
        raise BudgetError(params.max_tokens, needed)


def _check_options(constraint: Any, config: Any) -> None:
    """Refuse options of a request that vLLM does not hand to a back end: they would be ignored."""
    if constraint.whitespace_pattern is not None:
        raise ConstrainError("structured_outputs.whitespace_pattern cannot be enforced; put the form into the grammar")
    for name in ("disable_any_whitespace", "disable_additional_properties"):
        if getattr(constraint, name) and not getattr(config, name):
            raise ConstrainError(f"structured_outputs.{name} is an option of the server: --structured-outputs-config")
