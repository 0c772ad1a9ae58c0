"""Token sampling from logits: temperature, top-k, top-p, min-p and the settings that sort candidates.

:func:`sample` runs :func:`sample_torch` on a CPU (its steps are in ``sampling_steps.py``), and on a GPU the kernels
``csrc/cuda/sampling/sampling.cu`` and ``shaped_sampling.cu``, which is for rows whose candidates are sorted.
"""

from __future__ import annotations

import torch

from constrain.kernels import cuda
from constrain.kernels.bitmask import ChosenRows, apply_bitmask, check_bitmask, mask_arguments
from constrain.kernels.philox import philox_uniform
from constrain.kernels.sampling_steps import (
    choose,
    exclude_top_choices,
    find_candidates,
    reheat,
    truncate,
    write_top,
)
from constrain.kernels.sampling_tensors import GREEDY_TEMPERATURE, SamplingTensors, TopTokens

#: Maximum number of candidates of a row in the compiled kernel of shaped rows.
MAX_KERNEL_CANDIDATES = 1024

#: Share of the tokens up to which finding the largest takes less time than sorting all.
_FEW = 1 / 4

_PLAIN = ("temperature", "top_k", "top_p", "min_p", "seeds", "positions", "uniform")


def sample(
    logits: torch.Tensor,
    tensors: SamplingTensors,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
    allowed: ChosenRows | None = None,
    protected: ChosenRows | None = None,
    top: TopTokens | None = None,
    *,
    shaped: bool = False,
    max_candidates: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample a token for each row.

    The token is the one in whose share of [0, 1), in the order of ids, the row's random number falls. It depends on the
    row's own logits and settings alone. Tokens of equal logits count in the order of their ids, and logits that are not
    finite as -inf. On a GPU nothing waits for the device.

    Args:
        logits: float32 ``[rows, width]``, the last dimension contiguous; not changed.
        tensors: settings of each row.
        out: tensors for the results; contiguous.
        allowed: tokens to sample from, by default all; the logits of others are not read.
        protected: tokens that XTC does not change; none where the chosen row is negative.
        top: output for the most likely tokens of each row.
        shaped: whether the settings of the second group apply to any row; implied by ``top``.
        max_candidates: the largest ``top_k`` of shaped rows, and of those that want top tokens, none of which may be 0
            then; greedy rows count as 1. ``None`` is the width. On a GPU, a compiled kernel samples these rows up to
            1024 candidates, and torch, which sorts whole rows, beyond that.

    Returns:
        The tokens, int64 ``[rows]``, -1 where no logit is finite; and their probabilities among the tokens that were
        kept, float32 ``[rows]``.

    Raises:
        BitmaskError: ``allowed`` or ``protected`` has the wrong type, shape, layout or device.
    """
    for mask in (allowed, protected):
        if mask is not None:
            check_bitmask(logits, *mask)
    shaped = shaped or top is not None
    if out is None:
        rows = len(logits)
        out = torch.empty(rows, dtype=torch.int64, device=logits.device), logits.new_empty(rows, dtype=torch.float32)
    if logits.is_cuda and cuda.module is not None:
        _sample_cuda(logits, tensors, out, allowed, protected, top, shaped, max_candidates)
    else:
        found = sample_torch(logits, tensors, allowed, protected, top, shaped=shaped)
        for target, values in zip(out, found, strict=True):
            target.copy_(values)
    return out


def sample_torch(
    logits: torch.Tensor,
    tensors: SamplingTensors,
    allowed: ChosenRows | None = None,
    protected: ChosenRows | None = None,
    top: TopTokens | None = None,
    *,
    shaped: bool = False,
    max_candidates: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`sample` in plain torch, in float64 on the CPU and in float32 elsewhere.

    ``max_candidates`` bounds the candidates of all rows.
    """
    width = logits.shape[1]
    if allowed is not None:
        logits = logits.clone()
        apply_bitmask(logits, *allowed)
    if not (shaped or top is not None):
        tensors = SamplingTensors(**{name: getattr(tensors, name) for name in _PLAIN})
    if max_candidates is None and not logits.is_cuda:
        max_candidates = _max_candidates(tensors, width)
        if allowed is not None and max_candidates == width:
            # Sorting what masks exclude would take longer than all the rest.
            most = int((logits > -torch.inf).sum(dim=1).amax()) if len(logits) else 1
            max_candidates = max(1, most) if most <= width * _FEW else width
    num_columns = min(max_candidates or width, width)
    c = find_candidates(logits, tensors, num_columns, torch.float32 if logits.is_cuda else torch.float64)
    c = exclude_top_choices(reheat(truncate(c, tensors), tensors), tensors, protected)
    descending = c.descending() if tensors.skew is not None or top is not None else None
    if top is not None and descending is not None:
        write_top(c, descending, top, width)
    return choose(c, _uniform(tensors), tensors.skew, descending, width)


def _max_candidates(tensors: SamplingTensors, width: int) -> int:
    """Return the maximum number of candidates of a row, by ``top_k`` and temperature."""
    greedy = tensors.temperature < GREEDY_TEMPERATURE
    if tensors.temperature_last is not None:
        greedy = greedy & (tensors.temperature_last == 0)
    counts = tensors.top_k.masked_fill(tensors.top_k <= 0, width).masked_fill(greedy, 1)
    return int(counts.max()) if len(counts) else 1


def _uniform(tensors: SamplingTensors) -> torch.Tensor:
    if tensors.uniform is not None:
        return tensors.uniform
    if tensors.seeds is None or tensors.positions is None:
        raise ValueError("sampling needs seeds and positions, or uniform numbers")
    return philox_uniform(tensors.seeds, tensors.positions)


def _sample_cuda(
    logits: torch.Tensor,
    tensors: SamplingTensors,
    out: tuple[torch.Tensor, torch.Tensor],
    allowed: ChosenRows | None,
    protected: ChosenRows | None,
    top: TopTokens | None,
    shaped: bool,
    max_candidates: int | None,
) -> None:
    rows, width = logits.shape
    tokens, probabilities = out
    addresses = {name: cuda.address(values) for name, values in vars(tensors).items()}
    with torch.cuda.device(logits.device):
        call = cuda.module.Sampling(
            logits=cuda.address(logits),
            stride=logits.stride(0),
            **{name: addresses.pop(name) for name in _PLAIN},
            tokens=cuda.address(tokens),
            probabilities=cuda.address(probabilities),
            **mask_arguments(allowed),
            rows=rows,
            width=width,
        )
        num_columns = min(max_candidates or width, width)
        ids, probs, counts = top or (None, None, None)
        columns = 0 if ids is None else ids.shape[1]
        in_kernel = shaped and max(num_columns, columns) <= MAX_KERNEL_CANDIDATES
        shaping = cuda.module.Shaping(
            **addresses,
            **mask_arguments(protected, "protected_"),
            top_ids=cuda.address(ids),
            top_probabilities=cuda.address(probs),
            top_counts=cuda.address(counts),
            top_columns=columns,
            most_candidates=num_columns,
        )
        cuda.module.sample(call, shaping if in_kernel else None, stream=cuda.stream(logits))
    if in_kernel or not shaped:
        return
    found = sample_torch(logits, tensors, allowed, protected, top, shaped=True, max_candidates=num_columns)
    replaced = tensors.is_shaped()
    if top is not None:
        replaced = replaced | (top.counts > 0)
    for target, values in zip(out, found, strict=True):
        target.copy_(torch.where(replaced, values, target))
