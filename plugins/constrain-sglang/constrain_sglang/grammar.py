"""The constraint of one request, as SGLang's scheduler drives it."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.constrained.base_grammar_backend import BaseGrammarObject

from constrain.integrations.serving import OutputState
from constrain_sglang import masks


class ConstrainGrammar(BaseGrammarObject):  # type: ignore[misc]
    """SGLang's ``BaseGrammarObject``."""

    def __init__(self, state: OutputState) -> None:
        super().__init__()
        self.state = state

    def accept_token(self, token: int) -> None:
        """Append a token; tokens after the end are ignored.

        Raises:
            ValueError: it is not allowed. SGLang aborts the request.
        """
        if not self.state.accept(token):
            raise ValueError(f"token {token} is not allowed: {self.state.error or 'it leaves the language'}")
        self.current_token = token

    def rollback(self, k: int) -> None:
        """Remove the last ``k`` tokens."""
        self.state.rollback(k)

    def is_terminated(self) -> bool:
        """Whether the output has ended."""
        return self.state.is_terminated

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: Any) -> torch.Tensor:
        """Return a bitmask on the CPU that allows every token."""
        return masks.allocate(vocab_size, batch_size)

    def fill_vocab_mask(self, vocab_mask: torch.Tensor, idx: int) -> None:
        """Write the allowed tokens into a row."""
        self.state.fill_bitmask(masks.array.of(vocab_mask), idx)

    @staticmethod
    def reset_vocab_mask(vocab_mask: torch.Tensor) -> None:
        """Allow every token in all rows."""
        vocab_mask.fill_(-1)

    @staticmethod
    def move_vocab_mask(vocab_mask: torch.Tensor, device: Any) -> torch.Tensor:
        """Copy a bitmask to the device of the logits."""
        return vocab_mask.to(device, non_blocking=True)

    @staticmethod
    def apply_vocab_mask(logits: torch.Tensor, vocab_mask: torch.Tensor) -> None:
        """Set the logits of excluded tokens to -inf, in place."""
        masks.apply(logits, vocab_mask)

    def copy(self) -> ConstrainGrammar:
        """A copy that advances independently."""
        return ConstrainGrammar(self.state.copy())

    def try_jump_forward(self, tokenizer: Any) -> tuple[list[int], str] | None:
        """Return the tokens that have to come next, for ``jump_forward_str_state``; ``None`` if there are none.

        They are the tokens that the model's tokenizer has for their text, so nothing has to be tokenized again.
        """
        tokens = self.state.forced_tokens()
        return (tokens, "") if tokens else None

    def jump_forward_str_state(self, helper: tuple[list[int], str]) -> tuple[str, int]:
        """Return the text to append beyond the tokens of ``helper``: none."""
        return helper[1], -1

    def jump_and_retokenize(self, old_output_ids: list[int], new_output_ids: list[int], next_state: int) -> None:
        """Replace the tokens of the output by others.

        Raises:
            ValueError: they are not in the language.
        """
        kept = 0
        while kept < min(len(old_output_ids), len(new_output_ids)) and old_output_ids[kept] == new_output_ids[kept]:
            kept += 1
        self.state.rollback(len(old_output_ids) - kept)
        for token in new_output_ids[kept:]:
            self.accept_token(token)
