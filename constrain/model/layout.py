"""Names and shapes of the tensors of a model, derived from config and architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Literal, Protocol

from constrain.kernels import RecordForm
from constrain.model.architecture import Architecture, KeyPrefix
from constrain.model.expert_config import ExpertConfig
from constrain.model.latent_config import LatentConfig
from constrain.model.traits import DecoderTraits, Norm, QKNorm, StackedNames

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LinearLayout:
    """One or more projections of the same input, computed as one matrix product.

    Attributes:
        keys: names of the projections, also in adapters.
        outputs: number of output features of each.
        inputs: number of input features.
        bias: whether each has a bias.
        fused: name of the tensor if files of the family store them as one, also in adapters; else ``None``.
        apart: whether this file does not.
    """

    keys: tuple[str, ...]
    outputs: tuple[int, ...]
    inputs: int
    bias: bool = False
    fused: str | None = None
    apart: bool = False

    def parts(self) -> Iterator[tuple[str, int]]:
        """Names in the file and numbers of rows, in order."""
        if self.fused and not self.apart:
            return iter([(self.fused, sum(self.outputs))])
        return zip(self.keys, self.outputs, strict=True)

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        for key, rows in self.parts():
            yield f"{key}.weight", (rows, self.inputs)
            if self.bias:
                yield f"{key}.bias", (rows,)


@dataclass(frozen=True)
class ExpertLinearLayout:
    """The same projections of every expert, each as one matrix product.

    Attributes:
        experts: the projections of each.
        stacked: name of the tensor if the file has one for all experts.
        bias: name of the tensor of all biases, if there are any.
        transposed, alternating: form of the stacked tensor, see :class:`constrain.model.traits.StackedNames`.
        records: form of the records of every expert if a GPU takes them packed, else ``None``.
    """

    experts: tuple[LinearLayout, ...]
    stacked: str | None = None
    bias: str | None = None
    transposed: bool = False
    alternating: bool = False
    records: RecordForm | None = None

    @property
    def shape(self) -> Shape:
        """Number of experts, of output features, and of input features."""
        return len(self.experts), sum(self.experts[0].outputs), self.experts[0].inputs

    @property
    def stored_shape(self) -> Shape:
        """Shape of the stacked tensor."""
        experts, outputs, inputs = self.shape
        return (experts, inputs, outputs) if self.transposed else self.shape

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        if self.bias:
            yield self.bias, self.shape[:2]
        if self.stacked:
            yield self.stacked, self.stored_shape
            return
        for expert in self.experts:
            yield from expert.tensors()


@dataclass(frozen=True)
class MLPLayout:
    """Projections of an MLP; ``gate_up`` is the up projection alone where there is no gate."""

    gate_up: LinearLayout
    down: LinearLayout

    @property
    def gated(self) -> bool:
        """Whether there is a gate."""
        return len(self.gate_up.keys) > 1

    def linears(self) -> Iterator[LinearLayout]:
        """The projections that all tokens pass through."""
        yield from (self.gate_up, self.down)

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        yield from self.gate_up.tensors()
        yield from self.down.tensors()


@dataclass(frozen=True)
class MixtureLayout:
    """Projections of a mixture of experts: the router, the experts, and the MLP that all tokens pass through.

    ``correction`` is the name of a tensor with a number for each expert, see :func:`constrain.kernels.route`, and
    ``correction_shape`` its shape.
    ``shared_gate`` is the layer whose sigmoid is the weight of that MLP.
    """

    router: LinearLayout
    correction: str | None
    correction_shape: Shape
    gate_up: ExpertLinearLayout
    down: ExpertLinearLayout
    shared: MLPLayout | None
    shared_gate: LinearLayout | None

    def linears(self) -> Iterator[LinearLayout]:
        """The projections that all tokens pass through."""
        yield self.router
        if self.shared:
            yield from self.shared.linears()
        if self.shared_gate:
            yield self.shared_gate

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        yield from self.gate_up.tensors()
        yield from self.down.tensors()
        if self.correction:
            yield self.correction, self.correction_shape
        for linear in self.linears():
            yield from linear.tensors()


@dataclass(frozen=True)
class LatentLayout:
    """Norms and projections of latent attention, besides those of its input (``qkv`` of :class:`LayerLayout`).

    Attributes:
        norm: name of the norm of the latent state.
        expand: the projection of the latent state to keys and values.
        query_norm, query: norm and projection to queries, if these are not made of the hidden state.
    """

    norm: str
    expand: LinearLayout
    query_norm: str | None
    query: LinearLayout | None

    def linears(self) -> Iterator[LinearLayout]:
        """The projections."""
        yield self.expand
        if self.query:
            yield self.query

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        yield f"{self.norm}.weight", (self.expand.inputs,)
        if self.query_norm and self.query:
            yield f"{self.query_norm}.weight", (self.query.inputs,)
        for linear in self.linears():
            yield from linear.tensors()


@dataclass(frozen=True)
class LayerLayout:
    """Names and shapes of one layer; the name of an absent norm is ``None``."""

    attention: str
    attention_norm: str | None
    qkv: LinearLayout
    output: LinearLayout
    query_norm: str | None
    key_norm: str | None
    head_norm_shapes: tuple[Shape, Shape]
    attention_post_norm: str | None
    mlp: str
    mlp_norm: str | None
    feed_forward: MLPLayout | MixtureLayout
    mlp_post_norm: str | None
    sliding: bool
    rotary: bool
    sinks: str | None
    latent: LatentLayout | None

    def linears(self) -> Iterator[LinearLayout]:
        """The projections that all tokens pass through."""
        yield from (self.qkv, self.output, *self.feed_forward.linears())
        if self.latent:
            yield from self.latent.linears()


@dataclass(frozen=True)
class ModelLayout:
    """Names and shapes of a model.

    Attributes:
        tied: the head has the weight of the embedding.
        norm_bias: norms of hidden states have a bias.
    """

    embedding: str
    layers: tuple[LayerLayout, ...]
    norm: str
    head: str
    tied: bool
    vocab_size: int
    hidden_size: int
    num_heads: int
    norm_bias: bool

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """All tensors that the files must have."""
        yield f"{self.embedding}.weight", (self.vocab_size, self.hidden_size)
        for layer in self.layers:
            yield from self._layer_tensors(layer)
        yield from self._norm_tensors(self.norm)
        if not self.tied:
            yield f"{self.head}.weight", (self.vocab_size, self.hidden_size)

    def _layer_tensors(self, layer: LayerLayout) -> Iterator[tuple[str, Shape]]:
        for part in (layer.qkv, layer.output, layer.feed_forward, layer.latent):
            if part:
                yield from part.tensors()
        if layer.sinks:
            yield layer.sinks, (self.num_heads,)
        for norm in (layer.attention_norm, layer.attention_post_norm, layer.mlp_norm, layer.mlp_post_norm):
            if norm:
                yield from self._norm_tensors(norm)
        for norm, shape in zip((layer.query_norm, layer.key_norm), layer.head_norm_shapes, strict=True):
            if norm:
                yield f"{norm}.weight", shape

    def _norm_tensors(self, norm: str) -> Iterator[tuple[str, Shape]]:
        yield f"{norm}.weight", (self.hidden_size,)
        if self.norm_bias:
            yield f"{norm}.bias", (self.hidden_size,)


class LayoutConfig(Protocol):
    """The fields of a config that determine names and shapes of tensors."""

    arch: Architecture
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    head_dim: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    sliding_layers: list[bool]
    rotary_layers: list[bool]
    use_qk_norm: bool
    experts: ExpertConfig | None
    latent: LatentConfig | None


def model_layout(config: LayoutConfig, prefix: KeyPrefix, tied: bool) -> ModelLayout:
    """Derive the layout of a prepared config, with ``prefix`` before names of tensors."""
    return ModelLayout(
        embedding=f"{prefix.body}embed_tokens",
        layers=tuple(_layer(config, f"{prefix.body}layers.{i}.", i) for i in range(config.num_hidden_layers)),
        norm=f"{prefix.body}norm",
        head=f"{prefix.head}lm_head",
        tied=tied,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_heads=config.num_attention_heads,
        norm_bias=config.arch.lm.norm is Norm.LAYER_WITH_BIAS,
    )


def _layer(config: LayoutConfig, at: str, index: int) -> LayerLayout:
    traits: DecoderTraits = config.arch.lm
    hidden = config.hidden_size
    attention, latent = f"{at}self_attn", config.latent
    values = config.num_attention_heads * (latent.value if latent else config.head_dim)
    norms = [name and f"{at}{name}" for name in astuple(traits.norms)]
    experts = config.experts if config.experts and config.experts.layers[index] else None
    mlp = f"{at}{experts.traits.names.module if experts else traits.mlp_module}"
    has_norms = config.use_qk_norm and traits.qk_norm is not QKNorm.UNIT
    return LayerLayout(
        attention=attention,
        attention_norm=norms[0],
        qkv=_latent_input(config, latent, attention) if latent else _qkv(config, attention),
        output=LinearLayout((f"{attention}.o_proj",), (hidden,), values, config.output_bias),
        query_norm=f"{attention}.q_norm" if has_norms else None,
        key_norm=f"{attention}.k_norm" if has_norms else None,
        head_norm_shapes=_head_norm_shapes(config),
        attention_post_norm=norms[1],
        mlp=mlp,
        mlp_norm=norms[2],
        feed_forward=_mixture(config, experts, mlp) if experts else _mlp(config, mlp, config.intermediate_size),
        mlp_post_norm=norms[3],
        sliding=config.sliding_layers[index],
        rotary=config.rotary_layers[index],
        sinks=f"{attention}.sinks" if traits.sinks else None,
        latent=_latent(config, latent, attention) if latent else None,
    )


def _qkv(config: LayoutConfig, at: str) -> LinearLayout:
    heads, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    return LinearLayout(
        keys=tuple(f"{at}.{name}_proj" for name in "qkv"),
        outputs=(heads, kv, kv),
        inputs=config.hidden_size,
        bias=config.qkv_bias,
        fused=f"{at}.qkv_proj" if config.arch.lm.fused_qkv else None,
    )


def _latent_input(config: LayoutConfig, latent: LatentConfig, at: str) -> LinearLayout:
    queries = config.num_attention_heads * latent.query
    return LinearLayout(
        keys=(f"{at}.q_a_proj" if latent.query_rank else f"{at}.q_proj", f"{at}.kv_a_proj_with_mqa"),
        outputs=(latent.query_rank or queries, latent.stored),
        inputs=config.hidden_size,
    )


def _latent(config: LayoutConfig, latent: LatentConfig, at: str) -> LatentLayout:
    heads, rank = config.num_attention_heads, latent.query_rank
    return LatentLayout(
        norm=f"{at}.kv_a_layernorm",
        expand=LinearLayout((f"{at}.kv_b_proj",), (heads * (latent.plain + latent.value),), latent.rank),
        query_norm=f"{at}.q_a_layernorm" if rank else None,
        query=LinearLayout((f"{at}.q_b_proj",), (heads * latent.query,), rank) if rank else None,
    )


def _head_norm_shapes(config: LayoutConfig) -> tuple[Shape, Shape]:
    """Shapes of the weights of the norms of queries and of keys."""
    counts, size = (config.num_attention_heads, config.num_key_value_heads), config.head_dim
    if config.arch.lm.qk_norm is QKNorm.WHOLE:
        return (counts[0] * size,), (counts[1] * size,)
    if config.arch.lm.qk_norm is QKNorm.OWN_WEIGHTS:
        return (counts[0], size), (counts[1], size)
    return (size,), (size,)


def _mlp(config: LayoutConfig, at: str, inner: int) -> MLPLayout:
    name = config.arch.lm.fused_mlp
    fused = f"{at}.{name}" if name else None
    *gate_up_keys, down_key = (f"{at}.{name}" for name in config.arch.lm.mlp_names)
    sizes = (inner,) * len(gate_up_keys)
    gate_up = LinearLayout(tuple(gate_up_keys), sizes, config.hidden_size, config.mlp_bias, fused)
    return MLPLayout(gate_up, LinearLayout((down_key,), (config.hidden_size,), inner, config.mlp_bias))


def _mixture(config: LayoutConfig, experts: ExpertConfig, at: str) -> MixtureLayout:
    names, hidden, inner = experts.traits.names, config.hidden_size, experts.size
    each = [f"{at}.experts.{number}" for number in range(experts.count)]
    gate_up = (LinearLayout((f"{key}.{names.gate}", f"{key}.{names.up}"), (inner, inner), hidden) for key in each)
    down = (LinearLayout((f"{key}.{names.down}",), (hidden,), inner) for key in each)
    return MixtureLayout(
        router=LinearLayout((f"{at}.{names.router}",), (experts.count,), hidden, experts.traits.router_bias),
        correction=names.correction and f"{at}.{names.correction}",
        correction_shape=(1, experts.count) if names.correction_row else (experts.count,),
        gate_up=_expert_linear(tuple(gate_up), at, names.stacked, "gate_up"),
        down=_expert_linear(tuple(down), at, names.stacked, "down"),
        shared=_mlp(config, f"{at}.{names.shared}", experts.shared_size) if experts.shared_size else None,
        shared_gate=LinearLayout((f"{at}.{names.shared_gate}",), (1,), hidden) if names.shared_gate else None,
    )


def _expert_linear(
    experts: tuple[LinearLayout, ...], at: str, names: StackedNames | None, part: Literal["gate_up", "down"]
) -> ExpertLinearLayout:
    if names is None:
        return ExpertLinearLayout(experts)
    stacked = f"{at}.{getattr(names, part)}"
    return ExpertLinearLayout(
        experts,
        stacked,
        bias=f"{stacked}{names.bias}" if names.bias else None,
        transposed=names.transposed,
        alternating=names.alternating and part == "gate_up",
    )
