"""The choice of experts for each token."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch

from constrain.kernels import cuda


class Scoring(Enum):
    """The function that makes scores of a router's logits."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


@dataclass(frozen=True)
class Routing:
    """How a layer chooses experts, see :func:`route`.

    Attributes:
        chosen: number of experts for each token.
        scoring: makes scores of the router's logits.
        normalised: whether the scores of the chosen experts are divided by their sum.
        scale: factor of their scores.
        groups: number of groups of neighbouring experts.
        chosen_groups: number of groups from which experts are chosen, those of the highest scores.
        best_of_group: number of experts of a group whose scores make up that of the group.
    """

    chosen: int
    scoring: Scoring = Scoring.SOFTMAX
    normalised: bool = True
    scale: float = 1.0
    groups: int = 1
    chosen_groups: int = 1
    best_of_group: int = 1


class ExpertChoice(NamedTuple):
    """The experts that rows have chosen.

    Attributes:
        experts: int64 ``[rows, chosen]``; those of a row differ.
        weights: of their outputs, float32 ``[rows, chosen]``.
    """

    experts: torch.Tensor
    weights: torch.Tensor


def route(logits: torch.Tensor, routing: Routing, correction: torch.Tensor | None = None) -> ExpertChoice:
    """Choose experts by the logits of a router (Shazeer et al. 2017; groups and correction: DeepSeek-V3 report, 2024).

    Args:
        logits: ``[rows, experts]``.
        routing: how to choose.
        correction: float32 ``[experts]``, added to the scores for the choice, but not for the weights.
    """
    if _fits_kernel(logits, routing):
        return _route_cuda(logits, routing, correction)
    return route_reference(logits, routing, correction)


def route_reference(logits: torch.Tensor, routing: Routing, correction: torch.Tensor | None = None) -> ExpertChoice:
    """:func:`route` in plain torch."""
    logits = logits.float()
    scores = logits.sigmoid() if routing.scoring is Scoring.SIGMOID else logits.softmax(dim=-1)
    rank = scores if correction is None else scores + correction
    if routing.chosen_groups < routing.groups:
        rank = _within_groups(rank, routing)
    experts = rank.topk(routing.chosen, dim=-1).indices
    weights = scores.gather(-1, experts)
    if routing.normalised:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return ExpertChoice(experts, weights * routing.scale)


def _within_groups(rank: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Exclude the experts outside of the best groups."""
    groups = rank.view(len(rank), routing.groups, -1)
    best = groups.topk(routing.best_of_group, dim=-1).values.sum(dim=-1).topk(routing.chosen_groups, dim=-1).indices
    seen = torch.zeros_like(groups[..., 0], dtype=torch.bool).scatter_(-1, best, True)
    return groups.masked_fill(~seen.unsqueeze(-1), -torch.inf).flatten(1)


def _fits_kernel(logits: torch.Tensor, routing: Routing) -> bool:
    """Return whether the kernel takes these logits; it knows no groups of experts."""
    known = cuda.module is not None and logits.is_cuda and logits.dtype in (torch.float16, torch.bfloat16)
    if not known or routing.chosen_groups < routing.groups or logits.stride(-1) != 1:
        return False
    return kernels_take(logits.shape[1], routing.chosen)


def kernels_take(count: int, chosen: int) -> bool:
    """Return whether the compiled kernels take this many experts, and this many of them for a row."""
    return bool(count <= cuda.module.MAX_EXPERTS and chosen <= cuda.module.MAX_CHOSEN_EXPERTS)


def _route_cuda(logits: torch.Tensor, routing: Routing, correction: torch.Tensor | None) -> ExpertChoice:
    rows, count = logits.shape
    experts = torch.empty(rows, routing.chosen, dtype=torch.int64, device=logits.device)
    weights = torch.empty(rows, routing.chosen, device=logits.device)
    with torch.cuda.device(logits.device):
        cuda.module.route(
            logits=cuda.address(logits),
            correction=cuda.address(correction),
            experts=cuda.address(experts),
            weights=cuda.address(weights),
            stride=logits.stride(0),
            rows=rows,
            count=count,
            chosen=routing.chosen,
            scoring=routing.scoring.value,
            normalised=routing.normalised,
            scale=routing.scale,
            dtype=cuda.DTYPES[logits.dtype],
            stream=cuda.stream(logits),
        )
    return ExpertChoice(experts, weights)
