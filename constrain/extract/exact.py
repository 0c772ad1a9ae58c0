"""Exact distributions: branches that the written tokens leave open are scored by further requests, in batches.

A request takes the tokens up to a branch, nearly all of which are cached, through the model, and asks for the
probabilities of the next token under the constraint.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from constrain.completion import Completion, Rounds, submit_all
from constrain.engine import CompiledGrammar
from constrain.errors import GenerationError
from constrain.extract.begun import BegunFilter
from constrain.extract.confidence import LeafConfidence
from constrain.extract.distribution import Branch, Distribution
from constrain.filters import combine
from constrain.filters.masks import TokenMask
from constrain.model import ExLlamaV2MMEmbedding
from constrain.runtime import Handle, Request, Runtime, SamplingParams
from constrain.runtime.confidence import TokenConfidence
from constrain.runtime.outputs import Output

#: Maximum number of branches of a value that are scored, the most likely first.
MAX_BRANCHES = 256


def score_branches(
    runtime: Runtime,
    grammar: CompiledGrammar,
    written: Completion,
    leaves: Sequence[LeafConfidence],
    watched: TokenMask,
    embeddings: Sequence[ExLlamaV2MMEmbedding],
) -> Rounds[None]:
    """Score the branches of all leaves of a record, those that follow on them included.

    Args:
        runtime: the runtime to submit requests to.
        grammar: the grammar that the record was written with.
        written: what the model wrote.
        leaves: the leaves; their distributions are completed.
        watched: tokens that matter where many are allowed.
        embeddings: embeddings that ids of the prompt refer to.
    """
    scorer = _Scorer(runtime, grammar, written, watched, embeddings)
    rest = {leaf.first: MAX_BRANCHES for leaf in leaves}
    while True:
        found: list[tuple[LeafConfidence, Distribution, Branch]] = []
        for leaf in leaves:
            if leaf.distribution is not None:
                branches = leaf.distribution.take_branches(rest[leaf.first])
                rest[leaf.first] -= len(branches)
                found += [(leaf, leaf.distribution, branch) for branch in branches]
        if not found:
            return
        scores = yield submit_all([partial(scorer.submit, leaf.first, branch) for leaf, _, branch in found])
        for (_, distribution, branch), score in zip(found, scores, strict=True):
            distribution.divide(branch, score)


class PendingScore:
    """Probabilities of the next token that are being computed."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @property
    def done(self) -> bool:
        return self._handle.done

    @property
    def is_waiting(self) -> bool:
        return not self._handle.sequence.is_running and not self._handle.done

    def cancel(self) -> None:
        self._handle.cancel()

    def result(self) -> TokenConfidence:
        return _score(self._handle.result())

    async def aresult(self) -> TokenConfidence:
        return _score(await self._handle)


def _score(output: Output) -> TokenConfidence:
    confidence = output.tokens[0].confidence
    if confidence is None:
        raise GenerationError("the runtime has not returned the confidence of a token")
    return confidence


class _Scorer:
    """Submits requests for the probabilities of the token after a branch of a record."""

    def __init__(
        self,
        runtime: Runtime,
        grammar: CompiledGrammar,
        written: Completion,
        watched: TokenMask,
        embeddings: Sequence[ExLlamaV2MMEmbedding],
    ) -> None:
        self._runtime, self._grammar, self._written, self._watched = runtime, grammar, written, watched
        self._embeddings = embeddings

    def submit(self, first: int, branch: Branch) -> PendingScore:
        """Submit a request for a branch of the value that begins with the token number ``first`` of the record."""
        tokens = [*self._written.tokens[:first], *branch.tokens]
        begun = BegunFilter(self._runtime, self._grammar, tokens)
        width = self._runtime.model.config.padded_vocab_size
        request = Request(
            prompt=[torch.tensor([[*self._written.context, *tokens]])],
            sampling=SamplingParams(),
            constraint=combine([begun], self._runtime.tokenizer, width),
            max_new_tokens=1,
            return_confidence=True,
            watched_tokens=self._watched,
            embeddings=self._embeddings,
        )
        return PendingScore(self._runtime.submit(request))
