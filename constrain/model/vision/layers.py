"""The layers of a Pixtral vision tower: names of tensors, and attention of all patches of an image to each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from constrain.kernels import attention
from constrain.model.forward_context import AttentionLayer, rotated
from constrain.model.layout import LayerLayout, LinearLayout, MLPLayout, Shape
from constrain.model.modules import MLP, Attention, Module, RMSNorm
from constrain.model.vision_config import VisionConfig

NORM_EPS = 1e-5


def layer_layout(config: VisionConfig, at: str) -> LayerLayout:
    """Names and shapes of a layer, whose names begin with ``at``."""
    hidden, inner = config.hidden_size, config.intermediate_size
    own, mlp = f"{at}attention", f"{at}feed_forward"
    gate_up = LinearLayout((f"{mlp}.gate_proj", f"{mlp}.up_proj"), (inner, inner), hidden)
    return LayerLayout(
        attention=own,
        attention_norm=f"{at}attention_norm",
        qkv=LinearLayout(tuple(f"{own}.{name}_proj" for name in "qkv"), (hidden, hidden, hidden), hidden),
        output=LinearLayout((f"{own}.o_proj",), (hidden,), hidden),
        query_norm=None,
        key_norm=None,
        head_norm_shapes=((config.head_dim,), (config.head_dim,)),
        attention_post_norm=None,
        mlp=mlp,
        mlp_norm=f"{at}ffn_norm",
        feed_forward=MLPLayout(gate_up, LinearLayout((f"{mlp}.down_proj",), (hidden,), inner)),
        mlp_post_norm=None,
        sliding=False,
        rotary=True,
        sinks=None,
        latent=None,
    )


def layer_tensors(config: VisionConfig, layer: LayerLayout) -> Iterator[tuple[str, Shape]]:
    """Names and shapes of the tensors of a layer."""
    for part in (layer.qkv, layer.output, layer.feed_forward):
        yield from part.tensors()
    for norm in (layer.attention_norm, layer.mlp_norm):
        yield f"{norm}.weight", (config.hidden_size,)


def layer_modules(config: VisionConfig, layer: LayerLayout, index: int) -> list[Module]:
    """Build attention and MLP of a layer, without weights."""
    names = (layer.attention_norm, layer.mlp_norm)
    norms = {name: RMSNorm(name, (config.hidden_size,), NORM_EPS) for name in names if name}
    heads, head_dim = config.num_attention_heads, config.head_dim
    own = Attention(layer, index, norms, heads, heads, head_dim, scale=head_dim**-0.5, cap=None)
    assert isinstance(layer.feed_forward, MLPLayout)
    return [own, MLP(layer, layer.feed_forward, norms, config.activation)]


@dataclass(frozen=True)
class ImageAttention:
    """Attention metadata of one image: every patch attends to all.

    Attributes:
        cos, sin: rotations of the patches, see :func:`constrain.kernels.rotate`.
    """

    cos: torch.Tensor
    sin: torch.Tensor

    def to(self, device: torch.device) -> ImageAttention:
        return replace(self, cos=self.cos.to(device), sin=self.sin.to(device))

    def attend(self, layer: AttentionLayer, qkv: torch.Tensor) -> torch.Tensor:
        q, k, v = rotated(layer, qkv, self.cos, self.sin)
        return attention(q, k, v, scale=layer.scale)


def image_attention(config: VisionConfig, rows: int, columns: int, dtype: torch.dtype) -> ImageAttention:
    """Build the metadata of an image of ``rows`` times ``columns`` patches, on the CPU.

    Of the frequencies of a head, every other one turns with the row of a patch, and the others with its column.
    """
    frequencies = config.theta ** (-torch.arange(0, config.head_dim, 2, dtype=torch.float) / config.head_dim)
    by_row = torch.outer(torch.arange(rows, dtype=torch.float), frequencies[::2])
    by_column = torch.outer(torch.arange(columns, dtype=torch.float), frequencies[1::2])
    shape = rows, columns, -1
    angles = torch.cat((by_row.unsqueeze(1).expand(shape), by_column.unsqueeze(0).expand(shape)), -1).flatten(0, 1)
    cos, sin = angles.cos(), angles.sin()
    full = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    return ImageAttention(*(part.to(dtype).unsqueeze(1).unsqueeze(0) for part in full))
