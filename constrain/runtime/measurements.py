"""Measurement of the confidence of tokens, where logits were computed for few tokens only: later, many at a time.

Where every sequence of a pass has few allowed tokens, the head computes the logits of these alone. What the model would
have given to the others is computed for many positions in one product, which costs each a small part of a pass. That is
so on a CPU only. A GPU computes all logits in the pass, which costs it little: the host would have to wait for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from constrain.filters.masks import TokenMask, row
from constrain.kernels import ChosenRows, measure_masses
from constrain.model import ExLlamaV2
from constrain.model.forward_context import ForwardContext
from constrain.runtime.confidence import token_confidence
from constrain.runtime.outputs import SampledToken
from constrain.runtime.sampler.batch_sampler import SampledBatch
from constrain.runtime.sequence import SequenceState

#: Number of tokens of a sequence that are measured at a time.
_BATCH = 64


class _Unmeasured(NamedTuple):
    """A token, the input of the head ``[hidden]`` from which it was sampled, and the mask, which has few tokens."""

    token: SampledToken
    state: torch.Tensor
    mask: TokenMask


class Measurements:
    """Sets the confidence of sampled tokens."""

    def __init__(self, model: ExLlamaV2, width: int) -> None:
        """``width``: number of tokens to sample from, the first of the vocabulary."""
        self._model, self._width = model, width
        self._waiting: WeakKeyDictionary[SequenceState, list[_Unmeasured]] = WeakKeyDictionary()

    def add(
        self, sequence: SequenceState, token: SampledToken, mask: TokenMask | None, sampled: SampledBatch, place: int
    ) -> None:
        """Set the confidence of a token, or note what :meth:`complete` needs to set it.

        Args:
            sequence, token: a sequence, and its token.
            mask: the tokens that were allowed, ``None`` for all.
            sampled, place: the pass that the token is from, and its row there.
        """
        if sampled.masses is not None:
            (sums, choices), watched = sampled.masses, sequence.request.watched_tokens
            token.confidence = token_confidence(mask, watched, sums[place], choices[place])
        elif sampled.states is not None and mask is not None and token.id >= 0:
            self._waiting.setdefault(sequence, []).append(_Unmeasured(token, sampled.states[place], mask))

    def complete(self, sequence: SequenceState, context: ForwardContext) -> None:
        """Set the confidence of the tokens that wait for it, once the sequence has ended or they are many.

        ``context`` is the forward context of a pass with the adapters of the sequence.
        """
        waiting = self._waiting.get(sequence) if self._waiting else None
        if waiting and (sequence.finish is not None or len(waiting) >= _BATCH):
            del self._waiting[sequence]
            self._measure(waiting, context)

    def _measure(self, waiting: Sequence[_Unmeasured], context: ForwardContext) -> None:
        masks = np.stack([row(each.mask, (self._width + 31) // 32) for each in waiting])
        tokens = torch.tensor([each.token.id for each in waiting])
        with torch.inference_mode():
            states = torch.stack([each.state for each in waiting])
            logits = self._model.head(states, context)[:, : self._width].float()
            masses = measure_masses(logits, tokens, ChosenRows(torch.from_numpy(masks)))
        sums, choices = masses.sums.tolist(), masses.choices.numpy()
        for number, (token, _, mask) in enumerate(waiting):
            token.confidence = token_confidence(mask, None, sums[number], choices[number])
