"""Compares the layout of a model with the tensors of its files: projections that are stored apart, unused tensors."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from constrain.errors import WeightsError
from constrain.model.layout import ExpertLinearLayout, LayerLayout, LinearLayout, MixtureLayout, MLPLayout, ModelLayout
from constrain.model.tensor_files import TensorFiles

_log = logging.getLogger(__name__)

# Buffers that are computed anew, and scales for the products or caches of other programs.
_HARMLESS = re.compile(r".*(rotary_emb\.inv_freq|\.masked_bias|\.(input|output|q|k|v|kv)_scale)")
_PLACE = re.compile(r".*?\blayers\.\d+|[^.]+(\.[^.]+)?(?=\.)|.*")
_MAX_NAMED = 4


def as_stored(layout: ModelLayout, files: TensorFiles) -> ModelLayout:
    """Return the layout in these files, which may hold projections apart that the family usually has as one.

    EXL2 has those of Phi apart.
    """
    return replace(layout, layers=tuple(_layer(layer, files) for layer in layout.layers))


def _layer(layer: LayerLayout, files: TensorFiles) -> LayerLayout:
    inner = layer.feed_forward
    if isinstance(inner, MLPLayout):
        inner = _mlp(inner, files)
    elif isinstance(inner, MixtureLayout):
        shared = _mlp(inner.shared, files) if inner.shared else None
        inner = _oriented(inner, files)
        gate_up, down = _experts(inner.gate_up, files), _experts(inner.down, files)
        if gate_up.records is not None and down.records is not None:
            inner = replace(inner, gate_up=gate_up, down=down)
        inner = replace(inner, shared=shared)
    return replace(layer, qkv=_linear(layer.qkv, files), feed_forward=inner)


def _mlp(mlp: MLPLayout, files: TensorFiles) -> MLPLayout:
    return replace(mlp, gate_up=_linear(mlp.gate_up, files))


def _linear(linear: LinearLayout, files: TensorFiles) -> LinearLayout:
    if linear.fused and f"{linear.fused}.weight" not in files and f"{linear.keys[0]}.weight" in files:
        return replace(linear, apart=True)
    return linear


def _oriented(mixture: MixtureLayout, files: TensorFiles) -> MixtureLayout:
    """Return the layout with the other order of inputs and outputs of stacked experts, if the files have that.

    Newer releases of transformers save another one than the published files have.
    """
    parts = (mixture.gate_up, mixture.down)
    others = [replace(part, transposed=not part.transposed) for part in parts]
    if not _fit(others, files) or _fit(parts, files):
        return mixture
    return replace(mixture, gate_up=others[0], down=others[1])


def _fit(parts: Iterable[ExpertLinearLayout], files: TensorFiles) -> bool:
    found = [(files.tensors.get(part.stacked or ""), part.stored_shape) for part in parts]
    return all(tensor is not None and tensor.shape == shape for tensor, shape in found)


def _experts(linear: ExpertLinearLayout, files: TensorFiles) -> ExpertLinearLayout:
    """Note the form in which a GPU takes the experts packed.

    The first expert decides; one that differs from it is found when it is loaded.
    """
    tensors = [(linear.stacked, linear.stored_shape)] if linear.stacked else [*linear.experts[0].tensors()]
    tensors = [(key, shape) for key, shape in tensors if not key.endswith(".bias")]
    if any(key not in files.quantized for key, _ in tensors):
        return linear
    for key, shape in tensors:
        files.require(key, shape)
    stored = [files.quantized[key] for key, _ in tensors]
    return replace(linear, records=stored[0].records) if stored[0].joins(stored[1:]) else linear


def check_unused(files: TensorFiles, layout: ModelLayout, architecture: str, multimodal: bool) -> None:
    """Check that the layers of a model have no other tensors than those that it uses, and warn of tensors elsewhere.

    Of a multimodal model, tensors elsewhere are expected.

    Raises:
        WeightsError: a layer has others, as layers that compute something else have.
    """
    unused = [key for key in _unused(files, layout) if not files.has_idle_bias(key)]
    inside = list(_inside(unused, layout))
    if inside:
        raise WeightsError(
            f"{files.tensors[inside[0]].file}: has tensor {_listed(inside)}, which a {architecture} with this "
            "config.json does not use"
        )
    if unused and not multimodal:
        places = Counter(_place(key) for key in unused)
        _log.warning(
            "%s: %d tensors are not used: %s",
            files.files[0].parent,
            len(unused),
            _listed([f"{place} ({count})" for place, count in places.items()]),
        )


def _unused(files: TensorFiles, layout: ModelLayout) -> Iterator[str]:
    """Names of tensors that are neither used, nor parts of something that is, nor harmless."""
    used = {key for key, _ in layout.tensors()}
    owners = {key.rpartition(".")[0] for key in used}
    for key in files.tensors:
        owner, _, part = key.rpartition(".")
        is_part = owner in owners and part not in ("weight", "bias")
        if key not in used and not is_part and not _HARMLESS.fullmatch(key):
            yield key


def _inside(keys: Iterable[str], layout: ModelLayout) -> Iterator[str]:
    """Names of tensors that belong to the layers, or to what comes before and after them."""
    layers = {layer.attention.rpartition(".")[0] for layer in layout.layers}
    depth = next(iter(layers)).count(".") + 1
    for key in keys:
        outside = key.rpartition(".")[0] not in (layout.embedding, layout.norm, layout.head)
        if not outside or ".".join(key.split(".")[:depth]) in layers:
            yield key


def _place(key: str) -> str:
    found = _PLACE.match(key)
    return found[0] if found else key


def _listed(names: Iterable[str]) -> str:
    """Join names, of many only the first."""
    names = list(names)
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
