"""The steps of sampling in plain torch (top-k, top-p, min-p, ...), for all rows at once.

No step waits for the device or depends on values in the shapes of its tensors, so that all of them can be captured in
a CUDA graph. In each, a setting that is off keeps every candidate.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from constrain.kernels.bitmask import ChosenRows
from constrain.kernels.sampling_tensors import GREEDY_TEMPERATURE, SamplingTensors, TopTokens


class Candidates(NamedTuple):
    """Tokens of each row that may be sampled, from the most to the least likely one.

    Attributes:
        probs: float ``[rows, n]``, 0 for those that have been left out; the others add up to 1.
        ids: int64 ``[rows, n]``.
        kept: bool ``[rows, n]``, false for those that have been left out.
    """

    probs: torch.Tensor
    ids: torch.Tensor
    kept: torch.Tensor

    def keep(self, kept: torch.Tensor) -> Candidates:
        """Leave out all others, and normalise again."""
        kept = self.kept & kept
        return self.with_probs(self.probs.where(kept, 0.0), kept)

    def with_probs(self, probs: torch.Tensor, kept: torch.Tensor) -> Candidates:
        """Replace the probabilities by these, normalised."""
        total = probs.sum(dim=1, keepdim=True).clamp_min(torch.finfo(probs.dtype).tiny)
        return Candidates(probs / total, self.ids, kept)

    def first(self) -> torch.Tensor:
        """The most likely candidate of each row that is left, bool ``[rows, n]``."""
        return self.kept & (self.kept.cumsum(dim=1) == 1)

    def num_kept(self) -> torch.Tensor:
        """Candidates that are left, int64 ``[rows, 1]``."""
        return self.kept.sum(dim=1, keepdim=True)

    def descending(self) -> torch.Tensor:
        """Indices that order the candidates by probability, those left out at the end; int64 ``[rows, n]``."""
        return self.probs.masked_fill(~self.kept, -1.0).argsort(dim=1, descending=True, stable=True)


def find_candidates(logits: torch.Tensor, tensors: SamplingTensors, num_columns: int, dtype: torch.dtype) -> Candidates:
    """Softmax over the ``top_k`` tokens with the largest logits, at most ``num_columns`` of them.

    With a smoothing factor f, over ``-f (l - l_max) ** 2`` instead of the logits l (quadratic sampling,
    https://github.com/oobabooga/text-generation-webui/pull/5403).

    Args:
        logits: float32 ``[rows, width]``; those that are not finite count as -inf.
        tensors: the settings.
        num_columns: number of columns of the result.
        dtype: of the probabilities.
    """
    values, ids = _largest(logits, num_columns)
    temperature = tensors.temperature.to(dtype).unsqueeze(1)
    greedy = tensors.temperature.unsqueeze(1) < GREEDY_TEMPERATURE
    if tensors.temperature_last is not None:
        late = tensors.temperature_last.unsqueeze(1) != 0
        greedy, temperature = greedy & ~late, temperature.masked_fill(late, 1.0)
    temperature = temperature.masked_fill(greedy, 1.0)
    top_k = tensors.top_k.unsqueeze(1)
    top_k = top_k.masked_fill(top_k <= 0, num_columns).masked_fill(greedy, 1)
    kept = (values > -torch.inf) & (torch.arange(num_columns, device=logits.device) < top_k)
    scores = values.to(dtype) - values[:, :1].to(dtype)
    if tensors.smoothing_factor is not None:
        factor = tensors.smoothing_factor.to(dtype).unsqueeze(1)
        scores = torch.where(factor > 0, -factor * scores.square(), scores)
    # Rows without a finite logit are nan, where they should have no candidates.
    probs = (scores / temperature).masked_fill(~kept, -torch.inf).softmax(dim=1).nan_to_num(0.0)
    return Candidates(probs, ids, kept)


def truncate(c: Candidates, tensors: SamplingTensors) -> Candidates:
    """Apply ``top_p``, ``top_a``, ``min_p``, ``tfs``, ``typical`` and Mirostat, each to the candidates of the last."""
    c = top_p(c, tensors.top_p)
    if tensors.top_a is not None:
        c = top_a(c, tensors.top_a)
    c = min_p(c, tensors.min_p)
    if tensors.tfs is not None:
        c = tail_free(c, tensors.tfs)
    if tensors.typical is not None:
        c = typical(c, tensors.typical)
    if tensors.mirostat_mu is not None:
        c = mirostat(c, tensors.mirostat_mu)
    return c


def top_p(c: Candidates, threshold: torch.Tensor) -> Candidates:
    """Keep the fewest candidates that together reach ``threshold`` (Holtzman et al. 2020, nucleus sampling)."""
    before = c.probs.cumsum(dim=1) - c.probs
    return c.keep(before < _share(threshold, c, torch.inf))


def top_a(c: Candidates, factor: torch.Tensor) -> Candidates:
    """Keep candidates with ``p >= factor * p_max ** 2``."""
    return _at_least(c, factor.to(c.probs.dtype).unsqueeze(1) * c.probs[:, :1].square())


def min_p(c: Candidates, factor: torch.Tensor) -> Candidates:
    """Keep candidates with ``p >= factor * p_max`` (Nguyen et al. 2024)."""
    return _at_least(c, _share(factor, c, 0.0) * c.probs[:, :1])


def tail_free(c: Candidates, threshold: torch.Tensor) -> Candidates:
    """Cut where the curve of probabilities has flattened out.

    The absolute second differences, normalised, are summed from the front; the candidates up to the one at which the
    sum exceeds ``threshold`` stay (tail-free sampling, https://www.trentonbricken.com/Tail-Free-Sampling/). Those that
    are left must be the first ones.
    """
    if c.probs.shape[1] < 3:
        return c
    has_curvature = c.kept[:, 2:]
    curvature = c.probs.diff(n=2, dim=1).abs() * has_curvature
    total = curvature.sum(dim=1, keepdim=True)
    share = curvature.cumsum(dim=1) / total.clamp_min(torch.finfo(total.dtype).tiny)
    limit = _share(threshold, c, torch.inf)
    count = 1 + ((share <= limit) & has_curvature).sum(dim=1, keepdim=True)
    off = (limit == torch.inf) | (total == 0)
    return c.keep(off | (torch.arange(c.probs.shape[1], device=count.device) < count))


def typical(c: Candidates, threshold: torch.Tensor) -> Candidates:
    """Keep the fewest candidates of most typical surprise that together reach ``threshold``.

    Typical are those with ``-log p`` near the entropy (Meister et al. 2023, locally typical sampling).
    """
    surprise = -c.probs.clamp_min(torch.finfo(c.probs.dtype).tiny).log()
    entropy = (c.probs * surprise).sum(dim=1, keepdim=True)
    order = (surprise - entropy).abs().masked_fill(~c.kept, torch.inf).argsort(dim=1, stable=True)
    probs = c.probs.gather(1, order)
    kept = probs.cumsum(dim=1) - probs < _share(threshold, c, torch.inf)
    return c.keep(torch.empty_like(kept).scatter_(1, order, kept))


def mirostat(c: Candidates, mu: torch.Tensor) -> Candidates:
    """Keep candidates whose surprise ``-log2 p`` is at most ``mu`` bits (Basu et al. 2021, Mirostat 2.0)."""
    return _at_least(c, torch.exp2(-mu.to(c.probs.dtype)).unsqueeze(1))


def reheat(c: Candidates, tensors: SamplingTensors) -> Candidates:
    """Raise the probabilities to the power of ``1 / temperature`` where the temperature comes late, or is dynamic.

    A dynamic temperature rises with the entropy H of the candidates: ``low + (high - low) (H / H_max) ** exponent``,
    with H_max the logarithm of their number (https://github.com/LostRuins/koboldcpp/pull/516).
    """
    if tensors.max_temp is None and tensors.temperature_last is None:
        return c
    dtype, count = c.probs.dtype, c.num_kept()
    temperature = torch.ones_like(tensors.temperature, dtype=dtype).unsqueeze(1)
    if tensors.temperature_last is not None:
        late = tensors.temperature_last.unsqueeze(1) != 0
        temperature = tensors.temperature.to(dtype).unsqueeze(1).where(late, 1.0)
    if tensors.max_temp is not None:
        low = tensors.min_temp.to(dtype).unsqueeze(1) if tensors.min_temp is not None else 0.0 * temperature
        high = tensors.max_temp.to(dtype).unsqueeze(1)
        exponent = tensors.temp_exponent.to(dtype).unsqueeze(1) if tensors.temp_exponent is not None else 1.0
        entropy = torch.special.entr(c.probs).sum(dim=1, keepdim=True)
        share = (entropy / count.clamp_min(2).to(dtype).log()).clamp_min(0.0)
        dynamic = low + (high - low) * share.pow(exponent).clamp_max(torch.finfo(torch.float32).max)
        temperature = torch.where(high > low, dynamic, temperature)
    greedy = temperature < GREEDY_TEMPERATURE
    powers = (c.probs.log() / temperature.masked_fill(greedy, 1.0)).masked_fill(~c.kept, -torch.inf)
    hot = c.with_probs(powers.softmax(dim=1).nan_to_num(0.0), c.kept)
    heated = hot.keep(c.first() | ~greedy)
    changed = (count > 1) & (temperature != 1)
    return Candidates(heated.probs.where(changed, c.probs), c.ids, heated.kept.where(changed, c.kept))


def exclude_top_choices(c: Candidates, tensors: SamplingTensors, protected: ChosenRows | None) -> Candidates:
    """Shift probability from all likely candidates but the least of them to the other candidates.

    XTC (https://github.com/oobabooga/text-generation-webui/pull/6335) removes, with some probability, every candidate
    at or above a threshold except the least likely of those. This is the mean over that coin: with x the
    probability of those to be removed, theirs is multiplied by ``1 - probability``, that of all others by
    ``1 + probability * x / (1 - x)``. The candidates keep their order.

    Args:
        c: candidates in descending order.
        tensors: the settings.
        protected: the tokens whose bit is set are never removed; none where the row has no bits.
    """
    dtype = c.probs.dtype
    if tensors.xtc_probability is None:
        return c
    probability = tensors.xtc_probability.to(dtype).unsqueeze(1)
    threshold = tensors.xtc_threshold.to(dtype).unsqueeze(1) if tensors.xtc_threshold is not None else 0.0
    likely = c.kept & (c.probs >= threshold)
    if protected is not None:
        likely = likely & ~_has_bit(protected, c.ids)
    removed = likely & (likely.cumsum(dim=1) < likely.sum(dim=1, keepdim=True))
    x = (c.probs * removed).sum(dim=1, keepdim=True)
    others = 1.0 + probability * x / (1.0 - x)
    probs = c.probs * torch.where(removed, 1.0 - probability, others)
    return Candidates(probs.where((probability > 0) & (x < 1), c.probs), c.ids, c.kept)


def choose(
    c: Candidates, uniform: torch.Tensor, skew: torch.Tensor | None, descending: torch.Tensor | None, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the token in whose share of [0, 1), in the order of ids, a random number falls.

    With a skew, it is the number to the power of ``exp(-skew)``, and the order is descending.

    Args:
        c: candidates.
        uniform: float64 ``[rows]``.
        skew: float32 ``[rows]``.
        descending: their order; not needed without a skew.
        width: number of ids.

    Returns:
        Tokens, int64 ``[rows]``, -1 where there is no candidate; and their probabilities, float32 ``[rows]``.
    """
    order, uniform = _by_id(c.ids, width), uniform.unsqueeze(1)
    if skew is not None and descending is not None:
        bent = skew.unsqueeze(1) != 0
        order = torch.where(bent, descending, order)
        uniform = torch.where(bent, uniform.pow(torch.exp(-skew.double()).unsqueeze(1)), uniform)
    shares = c.probs.gather(1, order).double()
    sums = shares.cumsum(dim=1)
    total = sums[:, -1:]
    index = torch.arange(shares.shape[1], device=shares.device)
    possible = shares > 0
    # A number that was rounded to 1 is beyond all sums.
    last = torch.where(possible, index, 0).amax(dim=1, keepdim=True)
    found = torch.where(possible & (sums > uniform * total), index, last).amin(dim=1, keepdim=True)
    tokens = c.ids.gather(1, order.gather(1, found)).masked_fill(total == 0, -1)
    probs = shares.gather(1, found) / total.masked_fill(total == 0, 1.0)
    return tokens.squeeze(1), probs.float().squeeze(1)


def write_top(c: Candidates, descending: torch.Tensor, top: TopTokens, width: int) -> None:
    """Write the most likely candidates of the rows that want them; where there are fewer, the smallest other ids.

    Args:
        c: candidates.
        descending: their order.
        top: where they go, ``k`` of a row.
        width: number of ids, ``k`` at least.
    """
    rows, k = top.ids.shape
    first = descending[:, :k]
    probs, ids, kept = (x.gather(1, first) for x in c)
    # The smallest other ids are below 2 k, since those of fewer than k candidates are not among them.
    others = min(width, 2 * k)
    is_other = torch.ones(rows, others + 1, dtype=torch.bool, device=ids.device)
    is_other.scatter_(1, torch.where(kept & (ids < others), ids, others), False)
    column = kept.sum(dim=1, keepdim=True) + is_other.cumsum(dim=1) - 1
    column = torch.where(is_other & (column < k), column, k)[:, :others]
    numbers = torch.arange(others, device=ids.device).expand(rows, -1)
    padded = torch.zeros(rows, k + 1, dtype=torch.long, device=ids.device)
    padded[:, : ids.shape[1]] = ids
    padded = padded.scatter(1, column, numbers)[:, :k]
    padded_probs = torch.nn.functional.pad(probs.where(kept, 0.0), (0, k - probs.shape[1])).float()
    wanted = top.counts.unsqueeze(1) > 0
    top.ids.copy_(torch.where(wanted, padded, top.ids))
    top.probabilities.copy_(torch.where(wanted, padded_probs, top.probabilities))


def _largest(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``count`` largest logits in descending order and their ids, equal ones in the order of ids."""
    width = logits.shape[1]
    finite = logits.nan_to_num(-torch.inf, -torch.inf, -torch.inf)
    if count == width:
        return finite.sort(dim=1, descending=True, stable=True)
    if count == 1:
        values, ids = finite.max(dim=1, keepdim=True)  # of equal values the first
        return values, ids
    # Of equal values, `topk` may take any: so integers of the same order, with the id in the lower bits.
    bits = (finite + 0.0).view(torch.int32)  # -0.0 becomes 0.0
    order = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    keys = (order << 32) + torch.arange(width - 1, -1, -1, device=logits.device)
    ids = width - 1 - (keys.topk(count, dim=1).values & 0xFFFFFFFF)
    return finite.gather(1, ids), ids


def _by_id(ids: torch.Tensor, width: int) -> torch.Tensor:
    """Indices that order candidates by their ids, which differ and are below ``width``."""
    if ids.shape[1] < width:
        return ids.argsort(dim=1)
    return torch.empty_like(ids).scatter_(1, ids, torch.arange(width, device=ids.device).expand_as(ids))


def _share(values: torch.Tensor, c: Candidates, off: float) -> torch.Tensor:
    """A setting that is on between 0 and 1, as a column, with another value where it is off."""
    return values.where((values > 0) & (values < 1), off).to(c.probs.dtype).unsqueeze(1)


def _at_least(c: Candidates, threshold: torch.Tensor) -> Candidates:
    return c.keep((c.probs >= threshold) | c.first())


def _has_bit(rows: ChosenRows, ids: torch.Tensor) -> torch.Tensor:
    """Return whether the bits of ids are set, bool ``[rows, n]``; false where a row has none."""
    bits, chosen = rows
    if chosen is not None:
        words = bits[chosen.clamp(min=0).long().unsqueeze(1), ids // 32]
        return (words >> (ids % 32) & 1).bool() & (chosen >= 0).unsqueeze(1)
    return (bits.gather(1, ids // 32) >> (ids % 32) & 1).bool()
