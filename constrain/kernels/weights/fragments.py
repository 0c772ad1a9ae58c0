"""Codes of a few bits in the order in which a GPU's tensor cores take them.

A weight is cut into tiles of 16 outputs, and these into spans of 128 inputs. A span of a tile is a record of bytes:
codes by lane and quarter (32 inputs), then scales, then zero points or the scales of smaller groups.
``csrc/cuda/packed/packed.cuh`` has the order in full. Everything here is plain torch, on any device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from constrain.kernels.weights.bits import FLOAT4, FLOAT8, decode

TILE, SPAN = 16, 128
_QUARTERS, _LANES, _HALVES = 4, 32, 2
_MIN_GROUP = 32

BITS = {"int4": 4, "int8": 8, "float8": 8, "float4": 4, "scaled_float4": 4}
"""Bits of a code, by the names that the kernels know."""

MIDDLES = {"int4": 8, "int8": 128}
"""Zero points of integers that have none of their own."""

SUBGROUP = 16
"""Inputs that share a scale in E4M3, which codes ``scaled_float4`` have beside the others."""

_FLOATS = {"float4": FLOAT4, "float8": FLOAT8, "scaled_float4": FLOAT4}
# What the kernels multiply these by, so that neither they nor the weights leave the range of float16.
_SUBSCALE = 1 / 512
_SCALES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class RecordForm:
    """The form of a record.

    Attributes:
        codes: a key of :data:`BITS`.
        group: inputs of a scale: 32 or 128; scales of other groups are repeated.
        scales: float16, bfloat16 or float32.
        zeros: whether there are zero points.
    """

    codes: str
    group: int
    scales: torch.dtype
    zeros: bool = False

    @property
    def code_bytes(self) -> int:
        """Bytes of the codes of a record."""
        return TILE * SPAN * BITS[self.codes] // 8

    @property
    def groups(self) -> int:
        """Groups of a span."""
        return SPAN // self.group

    @property
    def byte_group(self) -> int:
        """Inputs of a zero point, or of a scale in E4M3."""
        return SUBGROUP if self.codes == "scaled_float4" else self.group

    @property
    def bytes(self) -> int:
        """Bytes of a record."""
        own = SPAN // self.byte_group if self.zeros or self.byte_group == SUBGROUP else 0
        return self.code_bytes + TILE * (self.groups * self.scales.itemsize + own)

    def size(self, outputs: int, inputs: int) -> int:
        """Bytes of the records of a weight ``[outputs, inputs]``."""
        return -(-outputs // TILE) * -(-inputs // SPAN) * self.bytes


def record_codes(kind: int) -> str:
    """Return the codes, a key of :data:`BITS`, of records of a kind of :mod:`constrain.kernels.weights.bits`."""
    if kind in (FLOAT4, FLOAT8):
        return "float4" if kind == FLOAT4 else "float8"
    return "int4" if kind <= BITS["int4"] else "int8"


def find_form(codes: str, group_size: int, inputs: int, scales: torch.dtype, zeros: bool) -> RecordForm | None:
    """Return the form of the records of a weight with groups of ``group_size`` inputs; ``None``: there is none."""
    whole = group_size >= inputs or group_size % SPAN == 0
    if inputs % 8 or not (whole or group_size % _MIN_GROUP == 0):
        return None
    return RecordForm(codes, SPAN if whole else _MIN_GROUP, scales if scales in _SCALES else torch.float32, zeros)


def make_records(
    codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, group_size: int, form: RecordForm
) -> torch.Tensor:
    """Arrange a weight.

    Args:
        codes: uint8 ``[outputs, inputs]``, one to a byte.
        scales: ``[outputs, groups]``.
        zeros: uint8 ``[outputs, groups]``, or ``None``.
        group_size: inputs of a group.
        form: of the records.

    Returns:
        uint8 ``[tiles, spans, form.bytes]``.
    """
    inputs = codes.shape[1]
    parts = [
        _arrange_codes(codes, BITS[form.codes]),
        _arrange_groups(scales.to(form.scales), group_size, inputs, form.group),
    ]
    if zeros is not None:
        parts.append(_arrange_groups(zeros, group_size, inputs, form.group))
    return torch.cat(parts, dim=-1)


def scaled_form() -> RecordForm:
    """Return the form of records of floats of four bits with a scale in E4M3 for each 16 inputs."""
    return RecordForm("scaled_float4", SPAN, torch.float32)


def make_scaled_records(codes: torch.Tensor, scales: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Arrange a weight of ``code * scale * factor`` in records of :func:`scaled_form`.

    Args:
        codes: E2M1, uint8 ``[outputs, inputs]``, one to a byte.
        scales: E4M3, uint8 ``[outputs, inputs / 16]``.
        factors: float32 ``[outputs]``.
    """
    inputs = codes.shape[1]
    of_rows = _arrange_groups(factors.float().unsqueeze(1) / _SUBSCALE, inputs, inputs, SPAN)
    of_groups = _arrange_groups(scales, SUBGROUP, inputs, SUBGROUP)
    return torch.cat((_arrange_codes(codes, 4), of_rows, of_groups), dim=-1)


def read_records(records: torch.Tensor, form: RecordForm) -> torch.Tensor:
    """Dequantise records ``[tiles, spans, form.bytes]`` to float32 ``[tiles * 16, spans * 128]``."""
    ends = [form.code_bytes, form.groups * TILE * form.scales.itemsize]
    codes, scales, bytes_ = torch.split(records, [*ends, form.bytes - sum(ends)], dim=-1)
    values = _values(_read_codes(codes, BITS[form.codes]), form.codes)
    if form.codes in MIDDLES:
        values = values - (_read_groups(bytes_, form.group).float() if form.zeros else MIDDLES[form.codes])
    elif form.codes == "scaled_float4":
        values = values * (decode(_read_groups(bytes_, SUBGROUP), FLOAT8) * _SUBSCALE)
    return values * _read_groups(scales.contiguous().view(form.scales), form.group).float()


def _values(codes: torch.Tensor, kind: str) -> torch.Tensor:
    return decode(codes, _FLOATS[kind]) if kind in _FLOATS else codes.float()


def _arrange_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    rows, columns = codes.shape
    whole = pad(codes, (0, -columns % SPAN, 0, -rows % TILE))
    tiles, spans = whole.shape[0] // TILE, whole.shape[1] // SPAN
    # Row halves and rows; spans, their halves and quarters, and in these lanes, halves of what a lane has, pairs of
    # inputs, and inputs.
    split = whole.view(tiles, _HALVES, 8, spans, _QUARTERS // 2, 2, 4, 2, 2, 2)
    if bits == 8:
        return split.permute(0, 3, 4, 5, 2, 6, 7, 8, 9, 1).reshape(tiles, spans, -1)
    nibbles = split.permute(0, 3, 4, 2, 6, 5, 7, 9, 8, 1)
    return (nibbles[..., 0] | nibbles[..., 1] << 4).reshape(tiles, spans, -1)


def _read_codes(arranged: torch.Tensor, bits: int) -> torch.Tensor:
    tiles, spans, _ = arranged.shape
    if bits == 8:
        split = arranged.reshape(tiles, spans, _QUARTERS, 8, 4, 2, 2, 2, _HALVES).permute(0, 8, 3, 1, 2, 4, 5, 6, 7)
    else:
        nibbles = torch.stack((arranged & 15, arranged >> 4), dim=-1)
        arranged = nibbles.reshape(tiles, spans, _QUARTERS // 2, 8, 4, 2, 2, 2, 2, _HALVES)
        split = arranged.permute(0, 9, 3, 1, 2, 5, 4, 6, 8, 7)
    return split.reshape(tiles * TILE, spans * SPAN)


def _arrange_groups(values: torch.Tensor, group_size: int, inputs: int, size: int) -> torch.Tensor:
    """Arrange values of groups ``[outputs, groups]`` as bytes ``[tiles, spans, bytes]``, with rows of zeros.

    Records have a value for each ``size`` inputs.
    """
    firsts, groups = torch.arange(0, inputs, size, device=values.device), SPAN // size
    own = values[:, firsts // group_size]
    own = pad(own, (0, -own.shape[1] % groups, 0, -own.shape[0] % TILE))
    tiles, spans = own.shape[0] // TILE, own.shape[1] // groups
    arranged = own.view(tiles, _HALVES, 8, spans, groups).permute(0, 3, 4, 2, 1)
    return arranged.contiguous().view(torch.uint8).view(tiles, spans, -1)


def _read_groups(values: torch.Tensor, size: int) -> torch.Tensor:
    """Return the values of records ``[tiles, spans, values]`` for each weight, ``[tiles * 16, spans * 128]``.

    Records have a value for each ``size`` inputs.
    """
    tiles, spans, _ = values.shape
    rows = values.reshape(tiles, spans, SPAN // size, 8, _HALVES).permute(0, 4, 3, 1, 2)
    return rows.reshape(tiles * TILE, spans * SPAN // size).repeat_interleave(size, dim=1)
