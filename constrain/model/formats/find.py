"""Detection of quantised weights by the names, types and shapes of their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from constrain.model.formats.exl2 import EXL2
from constrain.model.formats.floats import Float8, ModelOptFloat4, MXFloat4, NVFloat4, StackedFloat4
from constrain.model.formats.gptq import AWQ, GPTQ
from constrain.model.formats.integers import PackedIntegers, PlainIntegers
from constrain.model.formats.settings import Quantization
from constrain.model.formats.stored import Read, StoredTensor, StoredWeight

Parts = Mapping[str, StoredTensor]


def find_quantized(
    tensors: Mapping[str, StoredTensor], settings: Quantization | None, read: Read
) -> dict[str, StoredWeight]:
    """Find the quantised weights by the name of the weight that each stands for.

    Args:
        tensors: the stored tensors.
        settings: what the config says of them, or ``None``.
        read: returns a stored tensor.
    """
    layers: dict[str, dict[str, StoredTensor]] = {}
    for name, stored in tensors.items():
        key, _, part = name.rpartition(".")
        layers.setdefault(key, {})[part] = stored
    found = {key: (_format(parts, settings), parts) for key, parts in layers.items()}
    weights = {f"{key}.weight": kind(key, parts, settings, read) for key, (kind, parts) in found.items() if kind}
    stacks = (name.removesuffix("_blocks") for name in tensors if name.endswith("_blocks"))
    return weights | {key: StackedFloat4(key, _stack(tensors, key), settings, read) for key in stacks}


def _stack(tensors: Mapping[str, StoredTensor], key: str) -> Parts:
    return {part: tensors[f"{key}_{part}"] for part in ("blocks", "scales") if f"{key}_{part}" in tensors}


def _format(parts: Parts, settings: Quantization | None) -> type[StoredWeight] | None:
    for part, choose in _CODES.items():
        if part in parts and len(parts[part].shape) == 2:
            return choose(parts, settings)
    return None


def _of_packed(parts: Parts, settings: Quantization | None) -> type[StoredWeight]:
    if parts["weight_packed"].dtype != "U8":
        return PackedIntegers
    return NVFloat4 if "weight_global_scale" in parts else MXFloat4


def _of_weight(parts: Parts, settings: Quantization | None) -> type[StoredWeight] | None:
    by_type: dict[str, type[StoredWeight]] = {"I8": PlainIntegers, "F8_E4M3": Float8, "U8": ModelOptFloat4}
    return by_type.get(parts["weight"].dtype)


def _of_columns(parts: Parts, settings: Quantization | None) -> type[StoredWeight]:
    """Tell AWQ from GPTQ by the config, or by the columns: words in one, outputs in the other."""
    if settings is not None and settings.method in ("awq", "gptq"):
        return AWQ if settings.method == "awq" else GPTQ
    scales = parts.get("scales")
    return AWQ if scales is not None and scales.shape[-1:] == (8 * parts["qweight"].shape[1],) else GPTQ


_CODES: dict[str, Callable[[Parts, Quantization | None], type[StoredWeight] | None]] = {
    "weight_packed": _of_packed,
    "q_weight": lambda parts, settings: EXL2,
    "qweight": _of_columns,
    "weight": _of_weight,
}
