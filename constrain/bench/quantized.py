"""Memory bandwidth achieved by products with weights of few bits on a GPU, compared with those of bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from constrain.bench.device import conditions, read_bandwidth, seconds_per_call
from constrain.bench.random_model import FORMS, random_weight
from constrain.bench.shapes import Shape
from constrain.kernels import Activation, GroupedWeight, Weight, gated_linear, linear

_DTYPE = torch.bfloat16
_ROWS = (1, 2, 4, 8, 16, 32, 64)
# Several times the largest GPU cache, so that no call finds its weight cached.
_WORKING_SET = 400_000_000
_PLAIN, _ASYMMETRIC = "bfloat16", "int4 with zero points"


def measure_quantized(shape: Shape) -> dict[str, Any]:
    """Measure the products of a layer of a model; times in seconds, bandwidths in bytes per second."""
    limit = read_bandwidth()
    figures = [
        _figures(name, kind, outputs, inputs, limit)
        for kind, outputs, inputs in _layers(shape)
        for name in (_PLAIN, *FORMS, _ASYMMETRIC)
    ]
    return conditions() | {"read_bandwidth": limit, "products": [each for group in figures for each in group]}


def _layers(shape: Shape) -> list[tuple[str, int, int]]:
    hidden, inner = shape.hidden_size, shape.intermediate_size
    heads, kv = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    return [
        ("qkv", heads + 2 * kv, hidden),
        ("attention output", hidden, heads),
        ("gate and up", 2 * inner, hidden),
        ("down", hidden, inner),
    ]


def _figures(name: str, kind: str, outputs: int, inputs: int, limit: float) -> list[dict[str, Any]]:
    first = _weight(name, outputs, inputs)
    weights = [first, *(_weight(name, outputs, inputs) for _ in range(_WORKING_SET // first.nbytes))]
    figures = []
    for rows in _ROWS:
        x = torch.randn(rows, inputs, device="cuda", dtype=_DTYPE)
        seconds = seconds_per_call([_call(kind, x, weight) for weight in weights])
        share = first.nbytes / seconds / limit
        own = {"weight": name, "product": kind, "outputs": outputs, "inputs": inputs, "rows": rows}
        figures.append(own | {"bytes": first.nbytes, "seconds": seconds, "share_of_read_limit": share})
    return figures


def _call(kind: str, x: torch.Tensor, weight: Weight) -> Callable[[], torch.Tensor]:
    if kind == "gate and up":
        return partial(gated_linear, x, weight, None, Activation.SILU)
    return partial(linear, x, weight)


def _weight(name: str, outputs: int, inputs: int) -> Weight:
    """Return a random weight on the GPU as a loaded model has it."""
    device = torch.device("cuda")
    if name == _PLAIN:
        return torch.randn(outputs, inputs, device=device, dtype=_DTYPE).mul_(inputs**-0.5)
    weight = random_weight("int4" if name == _ASYMMETRIC else name, outputs, inputs, device)
    if name == _ASYMMETRIC:
        assert isinstance(weight, GroupedWeight)
        size = 32
        scales = weight.scales.repeat_interleave(weight.group_size // size, dim=1)
        zeros = torch.randint(0, 16, scales.shape, dtype=torch.uint8, device=device)
        weight = replace(weight, scales=scales, group_size=size, zeros=zeros)
    return weight.prepared(_DTYPE)
