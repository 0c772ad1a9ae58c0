"""Where files hold projections apart that the files of a family usually hold as one, as EXL2 has those of Phi."""

from __future__ import annotations

from dataclasses import replace

from constrain.model.layout import LayerLayout, LinearLayout, MixtureLayout, MLPLayout, ModelLayout
from constrain.model.tensor_files import TensorFiles


def as_stored(layout: ModelLayout, files: TensorFiles) -> ModelLayout:
    """Return the layout of a model in these files."""
    return replace(layout, layers=tuple(_layer(layer, files) for layer in layout.layers))


def _layer(layer: LayerLayout, files: TensorFiles) -> LayerLayout:
    inner = layer.feed_forward
    if isinstance(inner, MLPLayout):
        inner = _mlp(inner, files)
    elif isinstance(inner, MixtureLayout) and inner.shared:
        inner = replace(inner, shared=_mlp(inner.shared, files))
    return replace(layer, qkv=_linear(layer.qkv, files), feed_forward=inner)


def _mlp(mlp: MLPLayout, files: TensorFiles) -> MLPLayout:
    return replace(mlp, gate_up=_linear(mlp.gate_up, files))


def _linear(linear: LinearLayout, files: TensorFiles) -> LinearLayout:
    if linear.fused and f"{linear.fused}.weight" not in files and f"{linear.keys[0]}.weight" in files:
        return replace(linear, apart=True)
    return linear
