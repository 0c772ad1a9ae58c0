"""How a mask divides the probability of a row of logits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from constrain.kernels import cuda
from constrain.kernels.bitmask import ChosenRows, apply_bitmask_reference, check_bitmask, mask_arguments

#: Maximum number of tokens of a row whose logits are listed.
MAX_CHOICES = 256
#: Smallest share of probability that a sum of shares in float32 gives with full precision.
_MIN_SHARE = 1e-30


class Masses(NamedTuple):
    """How a mask divides the probability of each row.

    Attributes:
        sums: float32 ``[rows, 3]``: the logarithm of the sum of ``exp(logit)`` over all tokens, that over the allowed
            tokens, and the logit of the sampled token.
        choices: float32 ``[rows, MAX_CHOICES]``, the logits of allowed tokens in the order of their ids: of all of them
            if there are at most ``MAX_CHOICES``, else of those that are watched. Other entries are undefined.
    """

    sums: torch.Tensor
    choices: torch.Tensor


def measure_masses(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    allowed: ChosenRows | None = None,
    watched: ChosenRows | None = None,
) -> Masses:
    """Measure how masks divide the probability of each row.

    Args:
        logits: float32 ``[rows, width]``, the last dimension contiguous; those that are not finite count as -inf.
        tokens: int64 ``[rows]``, the sampled tokens; -1 for none, which counts as the first.
        allowed: the allowed tokens, by default all.
        watched: tokens that are listed even where many are allowed; none where the chosen row is negative.

    Raises:
        BitmaskError: a mask has the wrong type, shape, layout or device.
    """
    for mask in (allowed, watched):
        if mask is not None:
            check_bitmask(logits, *mask)
    if logits.is_cuda and cuda.module is not None:
        return _measure_cuda(logits, tokens, allowed, watched)
    masses = None if logits.is_cuda else _measure_cpu(logits, tokens, allowed, watched)
    return masses or measure_masses_reference(logits, tokens, allowed, watched)


def measure_masses_reference(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    allowed: ChosenRows | None = None,
    watched: ChosenRows | None = None,
) -> Masses:
    """:func:`measure_masses` in plain torch."""
    logits = logits.masked_fill(~logits.isfinite(), -torch.inf)
    is_allowed, is_watched = _flags(logits, allowed), _flags(logits, watched)
    if watched is None:
        is_watched = ~is_watched
    elif watched.chosen is not None:
        is_watched = is_watched & (watched.chosen >= 0).unsqueeze(1)
    is_few = is_allowed.sum(1, keepdim=True) <= MAX_CHOICES
    totals = torch.stack([logits.logsumexp(1), logits.masked_fill(~is_allowed, -torch.inf).logsumexp(1)], dim=1)
    return Masses(_with_sampled(totals, logits, tokens), _listed(logits, is_allowed & (is_few | is_watched)))


def _flags(logits: torch.Tensor, mask: ChosenRows | None) -> torch.Tensor:
    """Return a mask as bool ``[rows, width]``; all are set if there is none."""
    flags = torch.zeros_like(logits)
    if mask is not None:
        apply_bitmask_reference(flags, *mask)
    return flags == 0


def _with_sampled(totals: torch.Tensor, logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return torch.cat([totals, logits.gather(1, tokens.clamp(min=0).unsqueeze(1))], dim=1)


def _listed(logits: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    """Return the logits of flagged tokens ``[rows, MAX_CHOICES]``, in the order of their ids."""
    rank = flags.cumsum(1) - 1
    place = torch.where(flags & (rank < MAX_CHOICES), rank, MAX_CHOICES)
    return logits.new_empty(len(logits), MAX_CHOICES + 1).scatter_(1, place, logits)[:, :MAX_CHOICES]


def _measure_cpu(
    logits: torch.Tensor, tokens: torch.Tensor, allowed: ChosenRows | None, watched: ChosenRows | None
) -> Masses | None:
    """Measure with one softmax, and numpy for the bits; ``None`` where the range of float32 does not suffice."""
    width = logits.shape[1]
    bits = _bits(logits, allowed, -1)
    flags = _unpacked(bits, width)
    shares = logits.softmax(1)
    kept = torch.from_numpy(np.einsum("rt,rt->r", shares.numpy(), flags, dtype=np.float32, casting="unsafe"))
    if not bool((kept > _MIN_SHARE).all()):  # also where a logit is infinite or not a number
        return None
    total = logits.amax(1) - shares.amax(1).log_()
    is_few = torch.tensor([np.count_nonzero(row) <= MAX_CHOICES for row in flags]).unsqueeze(1)
    listed = bits & _bits(logits, watched, 0).masked_fill_(is_few, -1)
    choices = np.empty((len(logits), MAX_CHOICES), dtype=np.float32)
    for row, (values, is_listed) in enumerate(zip(logits.numpy(), _unpacked(listed, width), strict=True)):
        found = np.flatnonzero(is_listed)[:MAX_CHOICES]
        choices[row, : len(found)] = values[found]
    totals = torch.stack([total, total + kept.log()], dim=1)
    return Masses(_with_sampled(totals, logits, tokens), torch.from_numpy(choices))


def _bits(logits: torch.Tensor, mask: ChosenRows | None, default: int) -> torch.Tensor:
    """Return the bits of each row, all equal to those of ``default`` where a row has none."""
    rows, width = logits.shape
    if mask is None:
        return torch.full((rows, (width + 31) // 32), default, dtype=torch.int)
    if mask.chosen is None:
        return mask.bits.clone()
    return mask.bits[mask.chosen.clamp(min=0)].masked_fill_((mask.chosen < 0).unsqueeze(1), default)


def _unpacked(bits: torch.Tensor, width: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(bits.numpy().view(np.uint8), axis=1, count=width, bitorder="little").view(np.bool_)


def _measure_cuda(
    logits: torch.Tensor, tokens: torch.Tensor, allowed: ChosenRows | None, watched: ChosenRows | None
) -> Masses:
    rows, width = logits.shape
    masses = Masses(logits.new_empty(rows, 3), logits.new_empty(rows, MAX_CHOICES))
    with torch.cuda.device(logits.device):
        cuda.module.measure_masses(
            logits=cuda.address(logits),
            stride=logits.stride(0),
            tokens=cuda.address(tokens),
            **mask_arguments(allowed),
            **mask_arguments(watched, "watched_"),
            sums=cuda.address(masses.sums),
            choices=cuda.address(masses.choices),
            max_choices=MAX_CHOICES,
            rows=rows,
            width=width,
            stream=cuda.stream(logits),
        )
    return masses
