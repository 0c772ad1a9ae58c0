"""Floats of eight and of four bits: FP8, MXFP4 and NVFP4."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import torch

from constrain.kernels import (
    Float4Weight,
    Float8Weight,
    GroupedWeight,
    PackedWeight,
    RecordForm,
    fills_words,
    find_form,
    group_table,
    record_codes,
    scaled_form,
)
from constrain.kernels.weights.bits import FLOAT4, FLOAT8
from constrain.model.formats.groups import ScaleGrid
from constrain.model.formats.stored import DTYPES, FLOATS, StoredWeight, fill_rows

_POWERS = ("U8", "F8_E8M0")


class Float8(StoredWeight):
    """FP8 in E4M3, by compressed-tensors (``float-quantized``), by ModelOpt, and as DeepSeek and Qwen store it.

    ``weight``: ``[outputs, inputs]``. ``weight_scale`` or ``weight_scale_inv``, both of which multiply: one, one a row,
    one for each group of a row, or one for each block; powers of two may be stored as their exponents.
    """

    title, form = "FP8", "fp8"
    required = (("weight", 2),)

    @property
    def shape(self) -> tuple[int, int]:
        outputs, inputs = self.parts["weight"].shape
        return outputs, inputs

    @property
    def fills_words(self) -> bool:
        return fills_words(group_table(FLOAT8, self.shape[1], self.grid.columns))

    @property
    def records(self) -> RecordForm | None:
        scales = DTYPES.get(self.parts[self.scale].dtype, torch.bfloat16)
        return find_form(record_codes(FLOAT8), self.grid.columns, self.shape[1], scales, zeros=False)

    @property
    def row_bytes(self) -> int:
        size = 2 if self.parts[self.scale].dtype in _POWERS else self._scale_bytes(self.scale)
        return self.shape[1] + size * self.grid.groups

    @property
    def scale(self) -> str:
        """Name of the scales."""
        return "weight_scale_inv" if "weight_scale_inv" in self.parts else "weight_scale"

    @cached_property
    def grid(self) -> ScaleGrid:
        """Which elements share a scale.

        Raises:
            WeightsError: the shape of the scales fits no groups.
        """
        return self._find_grid()

    def _find_grid(self) -> ScaleGrid:
        block = self.settings.block if self.settings else (128, 128)
        found = self.parts[self.scale].shape
        grid = ScaleGrid.of(found, self.shape, block)
        if grid is None:
            raise self.error(self.scale, f"has shape {[*found]}, which fits no blocks of {[*block]} in {[*self.shape]}")
        return grid

    def packed(self) -> PackedWeight:
        """See :class:`StoredWeight`."""
        codes = self._stored("weight").view(torch.uint8)
        if (codes & 127 == 127).any():
            raise self.error("weight", "has values that are not numbers")
        scales = self._powers(self.scale) if self.parts[self.scale].dtype in _POWERS else self._finite(self.scale)
        return Float8Weight(codes, self.grid.of_rows(scales).contiguous(), self.grid.columns)

    def _check_parts(self) -> None:
        if self.scale not in self.parts:
            raise self.error("weight", "is of type F8_E4M3, but there is no weight_scale or weight_scale_inv")
        self._expect_type(self.scale, *FLOATS, *_POWERS)
        self._find_grid()


class _Float4(StoredWeight):
    """Floats E2M1, two in a byte, the first in the low bits, with a scale for each group of inputs.

    Attributes:
        codes: name of the part with them: uint8 ``[outputs, inputs / 2]``.
        size: inputs of a group.
    """

    codes: ClassVar[str] = "weight_packed"
    size: ClassVar[int]

    @property
    def shape(self) -> tuple[int, int]:
        outputs, half = self.parts[self.codes].shape
        return outputs, 2 * half

    @property
    def fills_words(self) -> bool:
        return fills_words(group_table(FLOAT4, self.shape[1], self.size))

    @property
    def records(self) -> RecordForm | None:
        return find_form(record_codes(FLOAT4), self.size, self.shape[1], torch.bfloat16, zeros=False)

    @property
    def _groups(self) -> int:
        return -(-self.shape[1] // self.size)

    def _check_parts(self) -> None:
        self._expect_type(self.codes, "U8")
        self._expect_type("weight_scale", *self.scale_types)
        self._expect_shape("weight_scale", (self.shape[0], self._groups))

    @property
    @abstractmethod
    def scale_types(self) -> tuple[str, ...]:
        """Types of the scales."""


class MXFloat4(_Float4):
    """MXFP4 of compressed-tensors. ``weight_scale``: exponents of powers of two, uint8 ``[outputs, inputs / 32]``."""

    title, required = "MXFP4", (("weight_packed", 2), ("weight_scale", 2))
    form, size, scale_types = "mxfp4", 32, _POWERS

    @property
    def row_bytes(self) -> int:
        return self.shape[1] // 2 + 2 * self._groups

    def packed(self) -> PackedWeight:
        """See :class:`StoredWeight`."""
        return Float4Weight(self._stored("weight_packed"), self._powers("weight_scale"), self.size)


class NVFloat4(_Float4):
    """NVFP4 of compressed-tensors: scales in FP8 of 16 inputs each, divided by ``weight_global_scale``."""

    title, required = "NVFP4", (("weight_packed", 2), ("weight_scale", 2), ("weight_global_scale", None))
    form, size, scale_types = "nvfp4", 16, ("F8_E4M3",)
    factor: ClassVar[str] = "weight_global_scale"

    @property
    def records(self) -> RecordForm | None:
        return scaled_form() if self.shape[1] % 8 == 0 else None

    @property
    def row_bytes(self) -> int:
        return self.shape[1] // 2 + self._groups + 4

    def packed(self) -> PackedWeight:
        """See :class:`StoredWeight`."""
        scales = self._finite("weight_scale")
        factors = self._factor().expand(self.shape[0]).contiguous()
        return Float4Weight(self._stored(self.codes), scales, self.size, factors=factors)

    def _check_parts(self) -> None:
        super()._check_parts()
        self._expect_type(self.factor, "F32")
        self._expect_shape(self.factor, (1,), ())

    def _factor(self) -> torch.Tensor:
        """Return the factor of all scales, float32 ``[1]``."""
        factor = 1 / self._finite(self.factor).reshape(1)
        if not factor.isfinite():
            raise self.error(self.factor, "is zero")
        return factor


class ModelOptFloat4(NVFloat4):
    """NVFP4 of ModelOpt: as that of compressed-tensors, but scales are multiplied by ``weight_scale_2``."""

    required = (("weight", 2), ("weight_scale", 2), ("weight_scale_2", None))
    codes, factor = "weight", "weight_scale_2"

    def _factor(self) -> torch.Tensor:
        return self._finite(self.factor).reshape(1)


class StackedFloat4(StoredWeight):
    """MXFP4 of all experts, as gpt-oss has it; as a weight its shape is ``[experts, inputs, outputs]``.

    ``blocks``: uint8 ``[experts, outputs, groups, 16]``, two codes in a byte, the first in the low bits. ``scales``:
    exponents of powers of two, uint8 ``[experts, outputs, groups]``.
    """

    title, form, separator = "MXFP4", "mxfp4", "_"
    required = (("blocks", 4), ("scales", 3))
    fills_words = True

    @property
    def shape(self) -> tuple[int, ...]:
        experts, outputs, groups, width = self.parts["blocks"].shape
        return experts, 2 * groups * width, outputs

    @property
    def records(self) -> RecordForm | None:
        return find_form(record_codes(FLOAT4), 32, self.shape[1], torch.bfloat16, zeros=False)

    @property
    def row_bytes(self) -> int:
        return self.shape[1] // 2 + 2 * self.parts["scales"].shape[2]

    def memory(self, rows: int, device: torch.device) -> int:
        """See :class:`StoredWeight`."""
        experts = self.shape[0]
        return experts * super().memory(rows // experts, device)

    def packed(self) -> Float4Weight:
        """Return the rows of all experts as one weight."""
        blocks, scales = self._stored("blocks"), self._powers("scales")
        return Float4Weight(blocks.flatten(2).flatten(0, 1), scales.flatten(0, 1), 32)

    def packed_experts(self) -> list[GroupedWeight]:
        """Read the weight of each expert, ``[outputs, inputs]``.

        Raises:
            WeightsError: a part has values that cannot be.
        """
        experts, _, outputs = self.shape
        weight = self.packed()
        return [weight[rows] for rows in torch.arange(experts * outputs).view(experts, outputs)]

    def fill(self, target: torch.Tensor) -> None:
        """See :class:`StoredWeight`."""
        for weight, expert in zip(self.packed_experts(), target, strict=True):
            fill_rows(weight, expert.T)

    def _check_parts(self) -> None:
        experts, outputs, groups, _ = self.parts["blocks"].shape
        self._expect_type("blocks", "U8")
        self._expect_shape("blocks", (experts, outputs, groups, 16))
        self._expect_type("scales", "U8")
        self._expect_shape("scales", (experts, outputs, groups))
