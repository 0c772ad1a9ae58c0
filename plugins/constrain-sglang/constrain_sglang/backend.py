"""The back end: SGLang's constraints compiled for the vocabulary of its model."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from sglang.srt.constrained.base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, InvalidGrammarObject

from constrain.engine.json_schema import WhitespacePolicy
from constrain.integrations.serving import (
    ENGINE_ERRORS,
    ConstraintKind,
    OutputState,
    compile_constraint,
    vocabulary_of,
)
from constrain_sglang import masks
from constrain_sglang.grammar import ConstrainGrammar
from constrain_sglang.tags import with_schemas

#: SGLang's schema for "any JSON object".
ANY_OBJECT = "$$ANY$$"


class ConstrainBackend(BaseGrammarBackend):  # type: ignore[misc]
    """SGLang's ``BaseGrammarBackend``.

    Args:
        tokenizer: the tokenizer of the model.
        vocab_size: number of the model's logits.
        eos_ids: end-of-sequence tokens of the model.
        whitespace: of JSON; see :func:`~constrain.engine.compile_json_schema`.

    Raises:
        VocabularyError: the tokens have no fixed bytes.
    """

    is_support_token_filter = True
    allocate_vocab_mask = staticmethod(lambda vocab_size, batch_size, device: masks.allocate(vocab_size, batch_size))
    move_vocab_mask = staticmethod(ConstrainGrammar.move_vocab_mask)
    apply_vocab_mask = staticmethod(ConstrainGrammar.apply_vocab_mask)

    def __init__(
        self, tokenizer: Any, vocab_size: int, eos_ids: Collection[int], whitespace: WhitespacePolicy = "bounded"
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary_of(tokenizer, vocab_size, eos_ids)
        self._whitespace = whitespace

    def dispatch_json(self, key_string: str) -> BaseGrammarObject:
        """Compile a JSON Schema."""
        return self._compiled("json_object" if key_string == ANY_OBJECT else "json", key_string)

    def dispatch_regex(self, key_string: str) -> BaseGrammarObject:
        """Compile a regular expression."""
        return self._compiled("regex", key_string)

    def dispatch_ebnf(self, key_string: str) -> BaseGrammarObject:
        """Compile a grammar in SGLang's EBNF or in Lark's notation."""
        return self._compiled("grammar", key_string)

    def dispatch_structural_tag(self, key_string: str) -> BaseGrammarObject:
        """Compile a structural tag in either notation."""
        return self._compiled("structural_tag", with_schemas(key_string))

    @staticmethod
    def set_token_filter(
        vocab_mask: torch.Tensor,
        token_ids: list[int],
        batch_idx: int,
        is_allowed: bool = True,
        reset_vocab_mask: bool = True,
    ) -> None:
        """Allow or exclude tokens in a row of a bitmask, for thoughts that are bounded."""
        masks.set_tokens(vocab_mask, token_ids, batch_idx, is_allowed, reset_vocab_mask)

    def _compiled(self, kind: ConstraintKind, text: str) -> BaseGrammarObject:
        """Compile a constraint; SGLang aborts a request with the message of an invalid one."""
        try:
            state = OutputState(compile_constraint(kind, text, self.vocabulary, whitespace=self._whitespace))
        except ENGINE_ERRORS as error:  # what is raised here would end the scheduler
            return InvalidGrammarObject(str(error) or type(error).__name__)
        state.prepare()
        return ConstrainGrammar(state)
