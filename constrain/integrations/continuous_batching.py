"""Constraints for the continuous batching of ``transformers``."""

from __future__ import annotations

from typing import Any

import torch
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessor

from constrain.engine import CompiledGrammar, allocate_bitmask
from constrain.errors import ArgumentError
from constrain.integrations.rows import check_width
from constrain.integrations.serving import OutputState
from constrain.kernels import apply_bitmask

__all__ = ["ContinuousBatchingConstraints"]


class ContinuousBatchingConstraints(ContinuousBatchingLogitsProcessor):
    """Restricts each request of continuous batching to a grammar of its own.

    :meth:`install` adds it to a manager; a request then brings its grammar: ``manager.add_request(ids,
    constraint=grammar)``. Requests without one are not constrained, and one whose ``constraint`` is something else
    fails alone. Outputs are complete within their ``max_new_tokens``, if any can be.
    """

    def __init__(self) -> None:
        self.supported_kwargs = {"constraint": CompiledGrammar}
        self.ignored_kwargs = ()
        self._states: dict[str, OutputState] = {}
        self._bits = torch.zeros(0, 0, dtype=torch.int32)
        self._size = 0

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
        """
        requests = [future.state for future in requests_with_new_token]
        constrained = [request for request in requests if "constraint" in request.logit_processor_kwargs]
        self._states = {request.request_id: self._advanced(request) for request in constrained}
        self._size = max((state.grammar.vocabulary.size for state in self._states.values()), default=0)
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

        Raises:
            GenerationError: the scores are narrower than the vocabulary of a grammar.
        """
        if not len(self._bits):
            return scores
        check_width(scores.shape[1], self._size)
        rows, scores = tensor_arg[: len(scores)].contiguous(), scores.clone()
        apply_bitmask(scores[:, : self._size], self._bits.to(scores.device), rows)
        scores[:, self._size :].masked_fill_((rows >= 0).unsqueeze(1), -torch.inf)
        return scores

    def _advanced(self, request: Any) -> OutputState:
        """Return the state of a request's output, from its last step on, or from its start after an interruption."""
        # After an interruption, what was written before counts as a part of the prompt.
        interrupted = request.initial_tokens[request._true_initial_tokens :] if request._true_initial_tokens else []
        output = [*interrupted, *request.generated_tokens]
        state = self._states.get(request.request_id)
        if state is None or state.num_tokens > len(output):
            state = OutputState(request.logit_processor_kwargs["constraint"])
        for token in output[state.num_tokens :]:
            state.accept(token)
        return state
