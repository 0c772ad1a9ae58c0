"""The layers of a model: weights and forward passes."""

from constrain.model.modules.attention import Attention
from constrain.model.modules.embedding import Embedding
from constrain.model.modules.half_layer import HalfLayer, Inner
from constrain.model.modules.head import PADDING_LOGIT, Head
from constrain.model.modules.mlp import MLP, GatedMLP, PlainMLP, make_mlp
from constrain.model.modules.module import Linear, Module, find_linear
from constrain.model.modules.norms import LayerNorm, RMSNorm, UnitNorm, fused_norm
from constrain.model.modules.parallel_layer import ParallelLayer
from constrain.model.modules.weight_loading import copy_rows, load_plain, load_weight

__all__ = [
    "MLP",
    "PADDING_LOGIT",
    "Attention",
    "Embedding",
    "GatedMLP",
    "HalfLayer",
    "Head",
    "Inner",
    "LayerNorm",
    "Linear",
    "Module",
    "ParallelLayer",
    "PlainMLP",
    "RMSNorm",
    "UnitNorm",
    "copy_rows",
    "find_linear",
    "fused_norm",
    "load_plain",
    "load_weight",
    "make_mlp",
]
