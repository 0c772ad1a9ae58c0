"""Verification of draft tokens and forced text: accepted while they equal the tokens sampled at their positions.

There is no rejection sampling by ratios of probabilities: with the random numbers of their positions, the tokens are
those that would have been sampled without drafts.
"""

from __future__ import annotations

from constrain.runtime.measurements import Measurements
from constrain.runtime.outputs import SampledToken, Update
from constrain.runtime.sampler.batch_sampler import SampledBatch
from constrain.runtime.scheduler import ScheduledSequence
from constrain.runtime.sequence import SequenceState


def verify(each: ScheduledSequence, sampled: SampledBatch, measurements: Measurements) -> list[Update]:
    """Verify the proposed tokens of a sequence, and append tokens up to and including the first that was not proposed.

    Returns an update for each token; all but the last were proposed.
    """
    sequence, updates = each.sequence, list[Update]()
    constraint = sequence.constraint.active
    for place, proposal in enumerate([*each.proposals, None], each.place):
        # All tokens were sampled under the conditions of the first, which the last token may have changed.
        if updates and (sequence.has_own_conditions or sequence.constraint.active is not constraint):
            break
        epoch = sequence.epoch
        token = _token(sequence, sampled, place)
        if sequence.request.return_confidence:
            measurements.add(sequence, token, each.mask_at(place), sampled, place)
        updates.append(sequence.accept(token))
        if sequence.finish is not None or sequence.epoch != epoch or sampled.tokens[place] != proposal:
            break
    return updates


def _token(sequence: SequenceState, sampled: SampledBatch, place: int) -> SampledToken:
    """Return a sampled token, with the details that its request asks for."""
    request, count = sequence.request, sequence.request.return_top_tokens
    token = SampledToken(sampled.tokens[place], sampled.probabilities[place])
    if count and sampled.top is not None:
        ids, probabilities = sampled.top[place]
        token.top = ids[..., :count], probabilities[..., :count]  # those of other rows may be more
    if request.return_logits:
        logits = sampled.raw if request.raw_logits else sampled.final
        token.logits = None if logits is None else logits[place]
    if request.return_logprobs is not None and sampled.logprobs is not None and token.id >= 0:
        token.logprob, likely = sampled.logprobs[place]
        token.top_logprobs = likely[: request.return_logprobs]
    if request.hook is not None and sampled.final is not None:
        token.final_logits = sampled.final[place]
    return token
