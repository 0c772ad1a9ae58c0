"""Constraints for ``generate`` of ``transformers``, and for its continuous batching."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LogitsProcessor
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessor

from constrain.arguments import check_type
from constrain.engine import CompiledGrammar, allocate_bitmask
from constrain.errors import ArgumentError
from constrain.integrations.rows import RowMasks
from constrain.integrations.serving import OutputState
from constrain.kernels import apply_bitmask

__all__ = ["ConstraintLogitsProcessor", "ContinuousBatchingConstraints"]


class ConstraintLogitsProcessor(LogitsProcessor):
    """Restricts the output of ``generate`` to a grammar, separately for each row of a batch or beam.

    A processor can be used for any number of calls of ``generate``, one after another. A call is new unless each row
    extends a row of an earlier step by one token. If the prompts of a new call happen to do so, call :meth:`reset`
    before it.

    After a complete text, only end-of-sequence tokens are allowed, repeatedly if ``generate`` does not know them. The
    same holds for a row that beam search has extended by an excluded token, for lack of allowed ones.

    Args:
        grammar: a grammar compiled for the vocabulary of the model, as wide as its logits or narrower.
        max_new_tokens: as given to ``generate``: texts are complete within them.
    """

    def __init__(self, grammar: CompiledGrammar, max_new_tokens: int | None = None) -> None:
        self.grammar = grammar
        self._masks = RowMasks(grammar, max_new_tokens)

    def reset(self) -> None:
        """Clear the state: the rows of the next step are prompts."""
        self._masks.reset()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Set the scores of excluded tokens to -inf.

        Args:
            input_ids: int64 ``[rows, length]``, prompts and output so far.
            scores: float ``[rows, width]``, of the next tokens.

        Returns:
            New scores, -inf for the excluded tokens.

        Raises:
            GenerationError: the scores are narrower than the vocabulary of the grammar.
            BudgetError: ``max_new_tokens`` is less than the shortest text needs.
        """
        size = self.grammar.vocabulary.size
        self._masks.check_width(scores.shape[1])
        bits = torch.from_numpy(self._masks.bits(input_ids.tolist()))
        scores = scores.clone()
        apply_bitmask(scores[:, :size], bits.to(scores.device))
        scores[:, size:] = -torch.inf
        return scores


class ContinuousBatchingConstraints(ContinuousBatchingLogitsProcessor):
    """Restricts each request of continuous batching to a grammar of its own, which is given by name.

    :meth:`install` adds it to a manager; a request then names its grammar: ``manager.add_request(ids,
    constraint="person")``. Requests that name none are not constrained. Within its ``max_new_tokens``, an output is
    complete.

    Args:
        grammars: grammars compiled for the vocabulary of the model, by name.
    """

    def __init__(self, grammars: dict[str, CompiledGrammar]) -> None:
        self.supported_kwargs = {"constraint": str}
        self.ignored_kwargs = ()
        check_type("grammars", grammars, dict, "grammars by name")
        if not grammars:
            raise ArgumentError("at least one grammar is needed")
        self._grammars = grammars
        self._size = next(iter(grammars.values())).vocabulary.size
        self._states: dict[str, OutputState] = {}
        self._bits = torch.zeros(0, 0, dtype=torch.int32)

    def install(self, manager: Any) -> None:
        """Add the constraints to a ``ContinuousBatchingManager``, before it is started.

        Raises:
            ArgumentError: it batches asynchronously, or in CUDA graphs: its steps are prepared before the tokens that
                the masks depend on are known.
        """
        config = manager.continuous_batching_config
        if config.use_async_batching or any(config.cuda_graph_booleans):
            raise ArgumentError(
                "constraints need ContinuousBatchingConfig(use_async_batching=False, use_cuda_graph=False)"
            )
        processors = manager.logit_processor
        processors.logits_processor.append(self)
        processors.tensors_required += 1
        processors.supported_keys.update(self.supported_kwargs)
        processors.do_processing = True

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        """Write the argument of requests without a constraint: int32 ``[rows]``."""
        int32_tensor.fill_(-1)

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> torch.Tensor:
        """Compute the masks of the next tokens.

        Args:
            requests_with_new_token: a ``FutureRequestState`` for each row of the scores.

        Returns:
            int32 ``[rows]``: the row of each request's mask, -1 for a request without a constraint.

        Raises:
            ArgumentError: a request names a grammar that is not known.
        """
        requests = [future.state for future in requests_with_new_token]
        constrained = [request for request in requests if "constraint" in request.logit_processor_kwargs]
        self._states = {request.request_id: self._advanced(request) for request in constrained}
        bits = allocate_bitmask(len(constrained), self._size)
        for row, request in enumerate(constrained):
            limit = request.max_new_tokens
            left = None if limit is None else limit - len(request.generated_tokens)
            self._states[request.request_id].fill_bitmask(bits, row, left)
        self._bits = torch.from_numpy(bits)
        rows = {request.request_id: row for row, request in enumerate(constrained)}
        return torch.tensor([rows.get(request.request_id, -1) for request in requests], dtype=torch.int32)

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        """Set the scores of excluded tokens to -inf.

        Args:
            scores: float ``[rows, width]``, of the next tokens.
            tensor_arg: int32 ``[at least rows]``, of :meth:`prepare_tensor_args`.

        Returns:
            New scores, -inf for the excluded tokens.
        """
        if not len(self._bits):
            return scores
        rows, scores = tensor_arg[: len(scores)].contiguous(), scores.clone()
        apply_bitmask(scores[:, : self._size], self._bits.to(scores.device), rows)
        scores[:, self._size :].masked_fill_((rows >= 0).unsqueeze(1), -torch.inf)
        return scores

    def _advanced(self, request: Any) -> OutputState:
        """Return the state of a request's output, from its last step on, or from its start after an interruption."""
        name = request.logit_processor_kwargs["constraint"]
        if name not in self._grammars:
            raise ArgumentError(f"there is no constraint {name!r}; there are {', '.join(self._grammars)}")
        # After an interruption, what was written before counts as a part of the prompt.
        interrupted = request.initial_tokens[request._true_initial_tokens :] if request._true_initial_tokens else []
        output = [*interrupted, *request.generated_tokens]
        state = self._states.get(request.request_id)
        if state is None or state.num_tokens > len(output):
            state = OutputState(self._grammars[name])
        for token in output[state.num_tokens :]:
            state.accept(token)
        return state
