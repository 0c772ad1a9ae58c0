"""Creation of the back end as SGLang asks for it, with its wrapper for the thoughts of reasoning models."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sglang.srt.constrained.base_grammar_backend import BaseGrammarBackend
from sglang.srt.runtime_context import get_serving

from constrain.engine.json_schema import WhitespacePolicy
from constrain.errors import ArgumentError
from constrain_sglang.backend import ConstrainBackend

#: Options of SGLang that other back ends have.
_FOREIGN = ("constrained_json_whitespace_pattern", "constrained_json_max_whitespace_cnt")


def create_backend(
    server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: Collection[int] | int | None = None
) -> BaseGrammarBackend:
    """Create the back end; with a reasoning parser, constraints apply after the thoughts.

    Args:
        server_args: SGLang's arguments as they were given; those that hold are in its context.
        tokenizer: the tokenizer of the model.
        vocab_size: number of the model's logits.
        eos_token_ids: end-of-sequence tokens of the model.

    Raises:
        ArgumentError: an option asks for white space that cannot be enforced.
        VocabularyError: the tokens have no fixed bytes.
    """
    serving = get_serving()
    eos = [eos_token_ids] if isinstance(eos_token_ids, int) else list(eos_token_ids or ())
    backend = ConstrainBackend(tokenizer, vocab_size, eos, _whitespace(serving))
    # SGLang wraps only the back ends that it knows.
    return _after_thoughts(backend, serving, tokenizer) if serving.reasoning_parser else backend


def _whitespace(serving: Any) -> WhitespacePolicy:
    for name in _FOREIGN:
        if getattr(serving, name) is not None:
            option = "--" + name.replace("_", "-")
            raise ArgumentError(f"{option} is not for constrain; --constrained-json-disable-any-whitespace is")
    return "compact" if serving.constrained_json_disable_any_whitespace else "bounded"


def _after_thoughts(backend: ConstrainBackend, serving: Any, tokenizer: Any) -> BaseGrammarBackend:
    """Wrap the back end, unless the tokenizer has no tokens for the end of thoughts, of which SGLang warns."""
    from sglang.srt.constrained.reasoner_grammar_backend import ReasonerGrammarBackend
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    parser = ReasoningParser(model_type=serving.reasoning_parser, stream_reasoning=False, tokenizer=tokenizer)
    if not parser.detector.get_think_end_token_ids(tokenizer):
        return backend
    return ReasonerGrammarBackend(backend, parser, tokenizer, enable_strict_thinking=serving.enable_strict_thinking)
