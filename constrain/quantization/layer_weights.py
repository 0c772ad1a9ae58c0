"""Quantisation of the weights of one module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from constrain.errors import ModelError
from constrain.model.layout import LinearLayout
from constrain.model.modules import Module
from constrain.quantization.layerwise import LayerwiseModel
from constrain.quantization.observed import ObservedWeight, WeightPlace, plain_weight, weight_places
from constrain.quantization.packing import CodedWeight
from constrain.quantization.rounding import (
    choose_scales,
    round_to_nearest,
    round_with_compensation,
    squared_errors,
)


@dataclass(frozen=True)
class Rounding:
    """How weights are rounded.

    Attributes:
        bits: of a code.
        group_size: inputs of a group; ``None``: all.
        dtype: of scales.
        activation_order, damping: see :func:`~constrain.quantization.rounding.round_with_compensation`.
    """

    bits: int
    group_size: int | None
    dtype: torch.dtype
    activation_order: bool = True
    damping: float = 0.01

    def round(self, weight: torch.Tensor, hessian: torch.Tensor | None) -> CodedWeight:
        """Round a float32 weight ``[outputs, inputs]``; to the nearest without a Hessian, or if that is better."""
        inputs = weight.shape[1]
        importance = weight.new_ones(inputs) if hessian is None else hessian.diagonal()
        scales = choose_scales(weight, self.bits, self.group_size or inputs, self.dtype, importance)
        plain = round_to_nearest(weight, scales, self.bits)
        if hessian is None:
            return plain
        better = round_with_compensation(weight, scales, self.bits, hessian, self.damping, self.activation_order)
        return min(better, plain, key=lambda coded: float(_error(weight, coded, hessian).sum()))


@dataclass(frozen=True)
class QuantizedLayers:
    """The quantised weights of layers.

    Attributes:
        tensors: of the weights, by their names in files.
        errors: root of the mean squared error of the products with each weight over that of the products; of its
            elements where there were no inputs.
    """

    tensors: dict[str, torch.Tensor]
    errors: dict[str, float]


def quantize_module(
    module: Module,
    model: LayerwiseModel,
    states: Sequence[torch.Tensor],
    rounding: Rounding,
    step: Callable[[], object],
) -> QuantizedLayers:
    """Quantise the weights of a module by the inputs that they have in some texts.

    Args:
        module: a loaded module, whose weights this replaces; see :func:`use_weights`.
        model: the model of the module.
        states: inputs of the module, see :meth:`LayerwiseModel.run`; none to round to the nearest.
        rounding: how to round.
        step: called after each text.

    Raises:
        ModelError: weights or activations of a layer are not finite.
    """
    places = weight_places(module)
    observed = [ObservedWeight(plain_weight(place.weight, model.dtype)) for place in places]
    for place, weight in zip(places, observed, strict=True):
        place.weight = weight
    for x in states:
        model.forward(module, x)
        step()
    done = QuantizedLayers({}, {})
    for place, weight in zip(places, observed, strict=True):
        found = quantize_weight(place.layout, weight.weight, weight.hessian, rounding)
        done.tensors.update(found.tensors)
        done.errors.update(found.errors)
    return done


def quantize_weight(
    layout: LinearLayout, weight: torch.Tensor, hessian: torch.Tensor | None, rounding: Rounding
) -> QuantizedLayers:
    """Quantise a weight, which may be those of several layers of the same input.

    Raises:
        ModelError: the weight is not finite, or the Hessian, which is of activations.
    """
    weight = weight.float()
    if not weight.isfinite().all():
        raise ModelError(f"{', '.join(layout.keys)}: the weights of this layer are not all finite")
    if hessian is not None and not hessian.isfinite().all():
        raise ModelError(f"{layout.keys[0]}: the inputs of this layer in the calibration texts are not finite")
    coded = rounding.round(weight, hessian)
    squares = _error(weight, coded, hessian)
    done = QuantizedLayers({}, {})
    start = 0
    for key, rows in layout.parts():
        part = slice(start, start + rows)
        done.tensors.update(CodedWeight(coded.codes[part], coded.scales[part], coded.bits).tensors(key))
        error, whole = squares[:, part].sum(dim=1).tolist()
        done.errors[key] = (max(error, 0.0) / whole) ** 0.5 if whole > 0 else 0.0
        start += rows
    return done


def use_weights(module: Module, tensors: Mapping[str, torch.Tensor], bits: int, model: LayerwiseModel) -> None:
    """Replace the weights of a module by those of :func:`quantize_module`."""
    for place in weight_places(module):
        place.weight = _weight_of(place, tensors, bits).to(model.device, model.dtype)


def _weight_of(place: WeightPlace, tensors: Mapping[str, torch.Tensor], bits: int) -> torch.Tensor:
    parts = [CodedWeight.of_tensors(tensors, key, bits).dequantized() for key, _ in place.layout.parts()]
    return torch.cat(parts)


def _error(weight: torch.Tensor, coded: CodedWeight, hessian: torch.Tensor | None) -> torch.Tensor:
    return squared_errors(weight, coded.dequantized(), hessian)
