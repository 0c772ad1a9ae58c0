"""Quantised weights in safetensors files: detection and dequantisation.

Formats: EXL2, GPTQ of four bits, and integers of eight bits with a scale for each row, as in the ``int-quantized`` form
of compressed-tensors. They are dequantised while a model is loaded, but for integers where the products of
:class:`constrain.kernels.Int8Weight` are offered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from constrain.errors import WeightsError
from constrain.kernels import dequantize_exl2, dequantize_gptq

#: Returns a stored tensor by its name.
Read = Callable[[str], torch.Tensor]


class StoredShape(Protocol):
    """What a file says of a tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...


_PARTS = {
    "exl2": ("q_weight", "q_groups", "q_scale", "q_scale_max", "q_invperm"),
    "gptq": ("qweight", "qzeros", "scales"),
    "int8": ("weight", "weight_scale"),
}
_EXL2_BITS = {2, 3, 4, 5, 6, 8}


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight ``[outputs, inputs]`` that a file holds in quantised form.

    Attributes:
        key: name of the layer, without ``.weight``.
        form: ``"exl2"``, ``"gptq"`` or ``"int8"``.
        outputs, inputs: shape; outputs may be rounded up to a multiple of 32.
        ordered: whether ``g_idx`` lists the group of each input feature.
    """

    key: str
    form: Literal["exl2", "gptq", "int8"]
    outputs: int
    inputs: int
    ordered: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """``(outputs, inputs)``."""
        return self.outputs, self.inputs

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether the first rows are a weight of this shape."""
        rounded = (shape[0] + 31) // 32 * 32
        return len(shape) == 2 and shape[1] == self.inputs and self.outputs in (shape[0], rounded)

    def read(self, read: Read, zero_offset: int) -> torch.Tensor:
        """Dequantise the weight, to float16 ``[outputs, inputs]``, or float32 if it is of form ``int8``.

        Args:
            read: returns the stored parts.
            zero_offset: for GPTQ, see :func:`constrain.kernels.dequantize_gptq`.

        Raises:
            WeightsError: the parts do not fit together.
        """
        if self.form == "int8":
            codes, scales = self.int8(read)
            return codes * scales.unsqueeze(1)
        try:
            return self._exl2(read) if self.form == "exl2" else self._gptq(read, zero_offset)
        except (IndexError, RuntimeError, ValueError) as cause:
            raise self._error(str(cause)) from cause

    def int8(self, read: Read) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the codes ``[outputs, inputs]`` of form ``int8``, and the scales as float32 ``[outputs]``.

        Raises:
            WeightsError: they do not fit together.
        """
        weight, scale = (read(f"{self.key}.{part}") for part in _PARTS["int8"])
        if scale.shape != (self.outputs, 1):
            raise self._error(f"scales of shape {list(scale.shape)}")
        return weight, scale.float().squeeze(1)

    def _error(self, reason: str) -> WeightsError:
        return WeightsError(f"{self.key}: the tensors of this {self.form} weight do not fit together ({reason})")

    def _exl2(self, read: Read) -> torch.Tensor:
        q_weight, q_groups, q_scale, q_scale_max, q_invperm = (read(f"{self.key}.{part}") for part in _PARTS["exl2"])
        bits, starts = (q_groups.to(torch.int64) & 0xFFFF).view(-1, 2).T.tolist()
        order = q_invperm.to(torch.int64)
        if not _EXL2_BITS.issuperset(bits) or starts != sorted(set(starts)) or starts[:1] != [0]:
            raise ValueError(f"groups of {bits} bits from rows {starts} on")
        if not torch.equal(order.sort().values, torch.arange(len(order))):
            raise ValueError("q_invperm is not a permutation")
        weight = dequantize_exl2(q_weight, bits, starts, q_scale, q_scale_max, order)
        if weight.shape != self.shape:
            raise ValueError(f"the groups make up a weight of shape {list(weight.shape)}")
        return weight

    def _gptq(self, read: Read, zero_offset: int) -> torch.Tensor:
        qweight, qzeros, scales = (read(f"{self.key}.{part}") for part in _PARTS["gptq"])
        if qweight.shape[0] * 8 != self.inputs or qzeros.shape[1] * 8 != self.outputs:
            raise ValueError("not of four bits")
        groups = self._groups_of(read, scales.shape[0])
        return dequantize_gptq(qweight, qzeros, scales, groups, zero_offset)

    def _groups_of(self, read: Read, count: int) -> torch.Tensor:
        """Return the group of each input feature: as listed, else groups of equal size, a power of two."""
        listed = read(f"{self.key}.g_idx").to(torch.int64) if self.ordered else torch.zeros(1)
        if listed.any():
            if len(listed) != self.inputs or listed.min() < 0:
                raise ValueError("g_idx does not name a group for each input feature")
            return listed
        size = 1
        while size * count < self.inputs:
            size *= 2
        return torch.arange(self.inputs) // size


def find_quantized(tensors: Mapping[str, StoredShape]) -> dict[str, QuantizedWeight]:
    """Find the quantised weights with all of their parts, by the name of the dequantised weight."""
    found = {}
    for name, stored in tensors.items():
        key, _, part = name.rpartition(".")
        if part == "q_weight" and _complete(tensors, key, "exl2"):
            inputs = tensors[f"{key}.q_invperm"].shape[0]
            found[f"{key}.weight"] = QuantizedWeight(key, "exl2", stored.shape[-1], inputs)
        elif part == "qweight" and _complete(tensors, key, "gptq"):
            inputs = stored.shape[0] * 8
            found[f"{key}.weight"] = QuantizedWeight(key, "gptq", stored.shape[-1], inputs, f"{key}.g_idx" in tensors)
        elif part == "weight" and stored.dtype == "I8" and len(stored.shape) == 2 and _complete(tensors, key, "int8"):
            found[name] = QuantizedWeight(key, "int8", *stored.shape)
    return found


def _complete(tensors: Mapping[str, StoredShape], key: str, form: str) -> bool:
    return all(f"{key}.{part}" in tensors for part in _PARTS[form])
