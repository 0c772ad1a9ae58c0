"""Memory bandwidth achieved by products with weights of few bits, compared with those of bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from constrain.bench.device import conditions, read_bandwidth, seconds_per_call
from constrain.bench.shapes import Shape
from constrain.kernels import Activation, Weight, gated_linear, linear
from constrain.kernels.weights.fragments import BITS, RecordForm
from constrain.kernels.weights.tensor_core import TensorCoreWeight
from constrain.model import ExLlamaV2
from constrain.model.modules import find_linear

_DTYPE = torch.bfloat16
_ROWS = (1, 2, 4, 8, 16, 32, 64)
# Several times the largest GPU cache, so that no call finds its weight cached.
_WORKING_SET = 400_000_000
FORMS = {
    "int4": RecordForm("int4", 128, _DTYPE),
    "int4-32-zeros": RecordForm("int4", 32, _DTYPE, zeros=True),
    "int8": RecordForm("int8", 128, _DTYPE),
    "float8": RecordForm("float8", 128, _DTYPE),
    "float4": RecordForm("float4", 32, _DTYPE),
}
"""Forms of packed weights that are measured, by name."""


def measure_quantized(shape: Shape) -> dict[str, Any]:
    """Measure the products of a layer of a model; times in seconds, bandwidths in bytes per second."""
    limit = read_bandwidth()
    figures = [
        _figures(name, form, kind, outputs, inputs, limit)
        for kind, outputs, inputs in _layers(shape)
        for name, form in [("bfloat16", None), *FORMS.items()]
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


def _figures(
    name: str, form: RecordForm | None, kind: str, outputs: int, inputs: int, limit: float
) -> list[dict[str, Any]]:
    first = random_weight(form, outputs, inputs)
    weights = [first, *(random_weight(form, outputs, inputs) for _ in range(_WORKING_SET // first.nbytes))]
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


def pack_layers(model: ExLlamaV2, form: RecordForm) -> int:
    """Replace the weights of all layers but the head by random packed ones, and return the bytes that this saves."""
    saved = 0
    for linear_layer in {id(layer): layer for layer in find_linear(model.modules).values()}.values():
        outputs, inputs = linear_layer.weight.shape
        before = linear_layer.weight.nbytes
        linear_layer.weight = torch.empty(0)
        linear_layer.weight = random_weight(form, outputs, inputs)
        saved += before - linear_layer.weight.nbytes
    torch.cuda.empty_cache()
    return saved


def random_weight(form: RecordForm | None, outputs: int, inputs: int) -> Weight:
    """Return a random weight on the GPU: bfloat16, or packed, with dimensions that are multiples of tiles and spans."""
    if form is None:
        plain = torch.randn(outputs, inputs, device="cuda", dtype=_DTYPE)
        return plain.mul_(inputs**-0.5)
    count = outputs * inputs
    codes = torch.randint(0, 1 << BITS[form.codes], (outputs, inputs), dtype=torch.uint8, device="cuda")
    if form.codes == "float8":
        codes &= 0xBF  # numbers below 2
    groups = (outputs, inputs // form.group)
    scales = torch.full(groups, count**-0.25 / 8, dtype=form.scales, device="cuda")
    zeros = torch.randint(0, 16, groups, dtype=torch.uint8, device="cuda") if form.zeros else None
    weight = TensorCoreWeight.of_codes(form.codes, codes, scales, zeros, form.group, _DTYPE)
    assert weight is not None
    return weight
