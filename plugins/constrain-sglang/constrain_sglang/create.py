"""Creation of the back end as SGLang asks for it, with its wrapper for the thoughts of reasoning models."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sglang.srt.constrained.base_grammar_backend import BaseGrammarBackend

from constrain_sglang.backend import ConstrainBackend


def create_backend(
    server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: Collection[int] | int | None = None
) -> BaseGrammarBackend:
    """Create the back end; with a reasoning parser, constraints apply after the thoughts.

    Args:
        server_args: SGLang's arguments.
        tokenizer: the tokenizer of the model.
        vocab_size: number of the model's logits.
        eos_token_ids: end-of-sequence tokens of the model.

    Raises:
        VocabularyError: the tokens have no fixed bytes.
    """
    eos = [eos_token_ids] if isinstance(eos_token_ids, int) else list(eos_token_ids or ())
    whitespace = "compact" if server_args.constrained_json_disable_any_whitespace else "bounded"
    backend = ConstrainBackend(tokenizer, vocab_size, eos, whitespace)
    # SGLang wraps only the back ends that it knows.
    return _after_thoughts(backend, server_args, tokenizer) if server_args.reasoning_parser else backend


def _after_thoughts(backend: ConstrainBackend, server_args: Any, tokenizer: Any) -> BaseGrammarBackend:
    from sglang.srt.constrained.reasoner_grammar_backend import ReasonerGrammarBackend
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    parser = ReasoningParser(model_type=server_args.reasoning_parser, stream_reasoning=False, tokenizer=tokenizer)
    return ReasonerGrammarBackend(backend, parser, tokenizer, enable_strict_thinking=server_args.enable_strict_thinking)
