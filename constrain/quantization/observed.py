"""The weights of a module that are quantised, and the inputs of the products with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from constrain.kernels import PackedWeight, Weight
from constrain.model.latent_attention import LatentAttention
from constrain.model.layout import LinearLayout
from constrain.model.mixture import ExpertLinear, Mixture
from constrain.model.modules import Linear, Module


class ObservedWeight(PackedWeight):
    """A plain weight that sums up the inputs of its products.

    Attributes:
        weight: ``[outputs, inputs]``.
        moments: float32 ``[inputs, inputs]``, the sum of ``x x^T`` over all inputs ``x``.
        count: number of inputs.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        self.moments = torch.zeros(weight.shape[1], weight.shape[1], device=weight.device)
        self.count = 0

    @property
    def shape(self) -> tuple[int, int]:
        return self.weight.shape[0], self.weight.shape[1]

    @property
    def hessian(self) -> torch.Tensor | None:
        """The mean of ``x x^T``, which this object need not keep any longer; ``None`` without any input."""
        return self.moments.div_(self.count) if self.count else None

    def dequantized(self, rows: torch.Tensor | slice, dtype: torch.dtype) -> torch.Tensor:
        """See :class:`PackedWeight`."""
        return self.weight[rows].to(dtype)

    def __getitem__(self, rows: torch.Tensor) -> ObservedWeight:
        return ObservedWeight(self.weight[rows])

    def padded(self, outputs: int) -> ObservedWeight:
        """See :class:`PackedWeight`."""
        return ObservedWeight(F.pad(self.weight, (0, 0, 0, outputs - len(self.weight))))

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """See :class:`PackedWeight`; sums up the rows of ``x``."""
        rows = x.reshape(-1, x.shape[-1]).float()
        self.moments.addmm_(rows.T, rows)
        self.count += len(rows)
        return F.linear(x, self.weight)


@dataclass(eq=False)
class WeightPlace:
    """The place of a weight in a module: a linear layer, or the number of an expert among the weights of all.

    Attributes:
        layout: names and shapes of the weight's parts in files.
    """

    layout: LinearLayout
    _owner: Linear | list[Weight]
    _number: int = 0

    @property
    def weight(self) -> Weight:
        """The weight in use."""
        return self._owner.weight if isinstance(self._owner, Linear) else self._owner[self._number]

    @weight.setter
    def weight(self, value: Weight) -> None:
        if isinstance(self._owner, Linear):
            self._owner.weight = value
        else:
            self._owner[self._number] = value


def plain_weight(weight: Weight, dtype: torch.dtype) -> torch.Tensor:
    """Return a weight as a plain one of ``dtype``."""
    return weight if isinstance(weight, torch.Tensor) else weight.dequantized(slice(None), dtype)


def quantized_layouts(module: Module) -> list[LinearLayout]:
    """Return the weights of a module that are quantised: its projections, except routers and stacked experts."""
    linears = [linear.layout for linear in _linears(module)]
    return [*linears, *(layout for each in _experts(module) for layout in each.layout.experts)]


def _linears(module: Module) -> list[Linear]:
    if isinstance(module, Mixture):
        return [*dict.fromkeys(linear for _, linear in module.shared.submodules())] if module.shared else []
    # The weight that expands latent states is multiplied with queries, and has no inputs of its own.
    skipped = module.expand if isinstance(module, LatentAttention) else None
    return [*dict.fromkeys(linear for _, linear in module.submodules() if linear is not skipped)]


def _experts(module: Module) -> list[ExpertLinear]:
    found = [module.gate_up, module.down] if isinstance(module, Mixture) else []
    return [each for each in found if each.layout.stacked is None]


def weight_places(module: Module) -> list[WeightPlace]:
    """Return the places of the weights of :func:`quantized_layouts` in a loaded module, in that order."""
    places = [WeightPlace(linear.layout, linear) for linear in _linears(module)]
    for each in _experts(module):
        weights: list[Weight] = list(each.weight)
        each.weight = weights
        places += [WeightPlace(layout, weights, number) for number, layout in enumerate(each.layout.experts)]
    return places
