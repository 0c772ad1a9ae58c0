"""Layers of vision towers: names of their tensors, patches as states, and attention among the patches of an image."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F

from constrain.kernels import attention
from constrain.model.forward_context import AttentionLayer, ForwardContext, rotated
from constrain.model.layout import LayerLayout, LinearLayout, MLPLayout, Shape
from constrain.model.modules import MLP, Attention, LayerNorm, Module, RMSNorm
from constrain.model.tensor_reader import TensorSource
from constrain.model.vision.config import VisionConfig

COLOURS = 3


@dataclass(frozen=True)
class BlockNames:
    """Names of the tensors of a layer, after that of the layer, and the kind of its parts.

    Attributes:
        attention, mlp: names of the modules.
        attention_norm, mlp_norm: names of the norms.
        output: the projection after attention.
        gate_up: gate and up projection of the MLP, or the up projection where there is no gate.
        down: the other projection of the MLP.
        fused: name of the projection to queries, keys and values, if the file has one for all.
        bias: whether projections have biases.
        rms: norms are RMS norms, in place of layer norms with a bias.
        rotary: queries and keys are rotated.
    """

    attention: str
    mlp: str
    attention_norm: str
    mlp_norm: str
    output: str
    gate_up: tuple[str, ...]
    down: str
    fused: str | None
    bias: bool
    rms: bool
    rotary: bool


def layer_layout(config: VisionConfig, names: BlockNames, at: str) -> LayerLayout:
    """Names and shapes of a layer, whose names begin with ``at``."""
    hidden, inner, bias = config.hidden_size, config.intermediate_size, names.bias
    own, mlp = f"{at}{names.attention}", f"{at}{names.mlp}"
    qkv = tuple(f"{own}.{name}_proj" for name in "qkv")
    gate_up = tuple(f"{mlp}.{name}" for name in names.gate_up)
    return LayerLayout(
        attention=own,
        attention_norm=f"{at}{names.attention_norm}",
        qkv=LinearLayout(qkv, (hidden,) * 3, hidden, bias, names.fused and f"{own}.{names.fused}"),
        output=LinearLayout((f"{own}.{names.output}",), (hidden,), hidden, bias),
        query_norm=None,
        key_norm=None,
        head_norm_shapes=((config.head_dim,), (config.head_dim,)),
        attention_post_norm=None,
        mlp=mlp,
        mlp_norm=f"{at}{names.mlp_norm}",
        feed_forward=MLPLayout(
            LinearLayout(gate_up, (inner,) * len(gate_up), hidden, bias),
            LinearLayout((f"{mlp}.{names.down}",), (hidden,), inner, bias),
        ),
        mlp_post_norm=None,
        sliding=False,
        rotary=names.rotary,
        sinks=None,
        latent=None,
    )


def layer_modules(config: VisionConfig, names: BlockNames, at: str, index: int) -> list[Module]:
    """Build attention and MLP of a layer, whose names begin with ``at``, without weights."""
    layer = layer_layout(config, names, at)
    keys = [name for name in (layer.attention_norm, layer.mlp_norm) if name]
    norms = {key: make_norm(key, config.hidden_size, config.norm_eps, names.rms) for key in keys}
    heads, head_dim = config.num_attention_heads, config.head_dim
    own = Attention(layer, index, norms, heads, heads, head_dim, scale=head_dim**-0.5, cap=None)
    assert isinstance(layer.feed_forward, MLPLayout)
    return [own, MLP(layer, layer.feed_forward, norms, config.activation)]


def tower_layers(config: VisionConfig, names: BlockNames, at: str) -> list[list[Module]]:
    """Build attention and MLP of every layer, whose names begin with ``at`` and their number, without weights."""
    return [layer_modules(config, names, f"{at}.{index}.", index) for index in range(config.num_hidden_layers)]


def make_norm(key: str, size: int, eps: float, rms: bool) -> RMSNorm:
    """Build an RMS norm, or a layer norm with a bias."""
    return RMSNorm(key, (size,), eps) if rms else LayerNorm(key, (size,), eps, biased=True)


class PatchEmbedding(Module):
    """Patches as states.

    A tower for videos reads ``frames`` images at a time. One image is all of them, so that the weights of the frames
    are summed once.
    """

    def __init__(self, key: str, config: VisionConfig, frames: int = 0, bias: bool = False) -> None:
        """Build from the name in the files; ``frames``: 0 if the tensor has no such dimension."""
        super().__init__(key)
        size = config.patch_size
        self.frames, self.biased = frames, bias
        self.shape: Shape = (config.hidden_size, COLOURS, *([frames] if frames else []), size, size)
        self.weight = torch.empty(0)
        self.bias: torch.Tensor | None = None

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """Names and shapes of the tensors."""
        yield f"{self.key}.weight", self.shape
        if self.biased:
            yield f"{self.key}.bias", self.shape[:1]

    def weights(self) -> Iterator[tuple[list[str], int]]:
        for name, shape in self.tensors():
            yield [name], math.prod(shape)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        weight = torch.empty(self.shape, dtype=torch.float, device=self.device)
        source.copy(f"{self.key}.weight", weight)
        self.weight = (weight.sum(2) if self.frames else weight).flatten(1).to(dtype)
        if self.biased:
            self.bias = torch.empty(self.shape[0], dtype=dtype, device=self.device)
            source.copy(f"{self.key}.bias", self.bias)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute states ``[1, patches, hidden]`` from patches ``[patches, 3 * size * size]``."""
        return F.linear(x, self.weight, self.bias).unsqueeze(0)


class PositionTable(Module):
    """A learned state for every place of a square of patches, which is added to those of patches."""

    def __init__(self, key: str, places: int, hidden: int) -> None:
        super().__init__(key)
        self.side, self.hidden = math.isqrt(places), hidden
        self.weight = torch.empty(0)

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """Name and shape of the tensor."""
        yield f"{self.key}.weight", (self.side**2, self.hidden)

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield [f"{self.key}.weight"], self.side**2 * self.hidden

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.weight = torch.empty(self.side**2, self.hidden, dtype=dtype, device=self.device)
        source.copy(f"{self.key}.weight", self.weight)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Add the table to states ``[1, side * side, hidden]``."""
        return x + self.weight

    def resized(self, rows: int, columns: int) -> torch.Tensor:
        """Return the table stretched to another grid, corner to corner, ``[rows, columns, hidden]``."""
        grid = self.weight.float().view(1, self.side, self.side, -1).permute(0, 3, 1, 2)
        found = F.interpolate(grid, (rows, columns), mode="bilinear", align_corners=True)
        return found[0].permute(1, 2, 0).to(self.weight.dtype)


@dataclass(frozen=True)
class ImageAttention:
    """Attention metadata of one image: every patch attends to all, or to those of its window.

    Attributes:
        cos, sin: rotations of the patches, see :func:`constrain.kernels.rotate`.
        windows: number of windows and patches of each, for windows of one size after another.
        whole: layers whose patches attend to all; ``None``: every layer.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    windows: tuple[tuple[int, int], ...] = ()
    whole: frozenset[int] | None = field(default=None)

    def to(self, device: torch.device) -> ImageAttention:
        return replace(self, cos=self.cos.to(device), sin=self.sin.to(device))

    def attend(self, layer: AttentionLayer, qkv: torch.Tensor) -> torch.Tensor:
        q, k, v = rotated(layer, qkv, self.cos, self.sin)
        if self.whole is None or layer.index in self.whole:
            return attention(q, k, v, scale=layer.scale)
        out, start = [], 0
        for count, size in self.windows:
            end = start + count * size
            parts = (part[0, start:end].view(count, size, *part.shape[2:]) for part in (q, k, v))
            out.append(attention(*parts, scale=layer.scale).flatten(0, 1))
            start = end
        return torch.cat(out).unsqueeze(0)


def image_attention(angles: torch.Tensor, dtype: torch.dtype, **windows: object) -> ImageAttention:
    """Build the metadata of an image from the angles ``[patches, head_dim / 2]`` of its patches."""
    cos, sin = angles.cos(), angles.sin()
    full = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    tables = (part.to(dtype).unsqueeze(1).unsqueeze(0) for part in full)
    return ImageAttention(*tables, **windows)  # type: ignore[arg-type]


def unrotated(dtype: torch.dtype) -> ImageAttention:
    """Return the metadata of an image whose patches are not rotated."""
    return ImageAttention(torch.ones(1, 1, 1, 2, dtype=dtype), torch.zeros(1, 1, 1, 2, dtype=dtype))
