"""Packed weights on a GPU, and their products by tensor cores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.functional import pad

from constrain.kernels import cuda
from constrain.kernels.activation import Activation, gated_activation
from constrain.kernels.few_rows import kernels_apply, queue_product
from constrain.kernels.gather import gathered
from constrain.kernels.norm import RowNorm, normed
from constrain.kernels.weights.fragments import (
    TILE,
    RecordForm,
    find_form,
    make_records,
    make_scaled_records,
    read_records,
    scaled_form,
)
from constrain.kernels.weights.packed import PackedWeight, Weight

MAX_ROWS = 64
"""Rows of a product that the kernels take; with more, a weight is dequantised for a dense product."""

# With more rows, a kernel of its own for the norm is faster than one in every block.
_FUSED_NORM_ROWS = 8
PIECE = 1 << 26
"""Elements that are dequantised at a time for a product of many rows."""


def multiplies_fragments(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether products of states of ``dtype`` with a :class:`TensorCoreWeight` are computed by a kernel."""
    return device.type == "cuda" and dtype in (torch.float16, torch.bfloat16) and cuda.module is not None


@dataclass(frozen=True, eq=False)
class TensorCoreWeight(PackedWeight):
    """A weight in the order of :mod:`constrain.kernels.weights.fragments`.

    Attributes:
        records: uint8 ``[tiles, spans, form.bytes]``.
        form: of the records.
        outputs, inputs: shape of the weight.
        dtype: of rows that are taken out: float16 or bfloat16.
        order: int32 ``[columns]``, the input of each column of the records; activations are gathered by it first. An
            input may have several columns, whose sum is its weight. ``None``: the columns are the inputs.
    """

    records: torch.Tensor
    form: RecordForm
    outputs: int
    inputs: int
    dtype: torch.dtype
    order: torch.Tensor | None = None

    @classmethod
    def of_codes(
        cls,
        kind: str,
        codes: torch.Tensor,
        scales: torch.Tensor,
        zeros: torch.Tensor | None,
        group_size: int,
        dtype: torch.dtype,
        order: torch.Tensor | None = None,
    ) -> TensorCoreWeight | None:
        """Arrange codes uint8 ``[outputs, inputs]``, one to a byte; ``None`` if there is no form for such groups.

        Other arguments are those of :func:`constrain.kernels.weights.fragments.make_records`, and attributes.
        """
        outputs, inputs = codes.shape
        form = find_form(kind, group_size, inputs, scales.dtype, zeros is not None)
        if form is None:
            return None
        return cls(make_records(codes, scales, zeros, group_size, form), form, outputs, inputs, dtype, order)

    @classmethod
    def of_scaled_floats(
        cls, codes: torch.Tensor, scales: torch.Tensor, factors: torch.Tensor, dtype: torch.dtype
    ) -> TensorCoreWeight | None:
        """Arrange E2M1 with scales in E4M3; ``None`` if rows do not fill 16 bytes.

        Arguments are those of :func:`constrain.kernels.weights.fragments.make_scaled_records`, and attributes.
        """
        outputs, inputs = codes.shape
        if inputs % 8:
            return None
        return cls(make_scaled_records(codes, scales, factors), scaled_form(), outputs, inputs, dtype)

    @property
    def shape(self) -> tuple[int, int]:
        return self.outputs, self.inputs

    @property
    def width(self) -> int:
        """Columns of the records."""
        return self.inputs if self.order is None else len(self.order)

    def prepared(self, dtype: torch.dtype) -> TensorCoreWeight:
        """See :class:`PackedWeight`."""
        return replace(self, dtype=dtype)

    def padded(self, outputs: int) -> TensorCoreWeight:
        """See :class:`PackedWeight`; rows that fill up the last tile have scales of zero."""
        tiles = -(-outputs // TILE) - len(self.records)
        return replace(self, records=pad(self.records, (0, 0, 0, 0, 0, tiles)), outputs=outputs)

    def __getitem__(self, rows: torch.Tensor) -> Weight:
        """Return rows ``[n]``, which are plain."""
        return self.dequantized(rows, self.dtype)

    def rows(self, outputs: range) -> Weight:
        """See :class:`PackedWeight`; whole tiles stay packed."""
        if outputs.start % TILE or (outputs.stop % TILE and outputs.stop < self.outputs):
            return super().rows(outputs)
        tiles = self.records[outputs.start // TILE : -(-outputs.stop // TILE)].clone()
        return replace(self, records=tiles, outputs=len(outputs))

    def dequantized(self, rows: torch.Tensor | slice, dtype: torch.dtype) -> torch.Tensor:
        """See :class:`PackedWeight`."""
        # The sum of the columns of an input is rounded once.
        exact = dtype if self.width == self.inputs else torch.float32
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.outputs)
            tiles = self.records[start // TILE : -(-stop // TILE)]
            found = self._dense(tiles, exact)[start % TILE : start % TILE + stop - start]
        else:
            flat = torch.split(rows.reshape(-1).to(self.device), max(1, PIECE // (TILE * self.width)))
            found = torch.cat([self._chosen(each, exact) for each in flat]).view(*rows.shape, self.width)
        return self._of_inputs(found).to(dtype)

    def _of_inputs(self, columns: torch.Tensor) -> torch.Tensor:
        """Add up the columns of each input, ``[..., columns]`` to ``[..., inputs]``."""
        if self.order is None:
            return columns
        return columns.new_zeros(*columns.shape[:-1], self.inputs).index_add_(-1, self.order.long(), columns)

    def _chosen(self, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Dequantise rows ``[n]`` with the whole of their tiles."""
        whole = self._dense(self.records[rows // TILE], dtype).view(-1, TILE, self.width)
        return whole[torch.arange(len(rows), device=rows.device), rows % TILE]

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """See :class:`PackedWeight`."""
        return self.linear(x)

    def linear(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        norm: RowNorm | None = None,
    ) -> torch.Tensor:
        """See :func:`constrain.kernels.linear`."""
        return self._linear(*self._ordered(x, norm), bias, residual)

    def gated_linear(
        self, x: torch.Tensor, bias: torch.Tensor | None, activation: Activation, norm: RowNorm | None = None
    ) -> torch.Tensor:
        """See :func:`constrain.kernels.gated_linear`."""
        x, norm = self._ordered(x, norm)
        if self._is_small(x) and self.outputs % (2 * TILE) == 0:
            return self._few_rows(x, bias, None, activation, norm)
        return gated_activation(self._linear(x, norm, bias, None), activation)

    def _linear(
        self, x: torch.Tensor, norm: RowNorm | None, bias: torch.Tensor | None, residual: torch.Tensor | None
    ) -> torch.Tensor:
        """:meth:`linear` of activations in the order of the columns."""
        if self._is_small(x):
            return self._few_rows(x, bias, residual, None, norm)
        y = self._many_rows(normed(x, norm), bias)
        return y if residual is None else y.add_(residual)

    def _ordered(self, x: torch.Tensor, norm: RowNorm | None) -> tuple[torch.Tensor, RowNorm | None]:
        """Gather activations, and apply the norm where the kernel does not."""
        if self.order is not None:
            return gathered(x, self.order, norm), None
        rows = x.numel() // max(1, self.inputs)
        if norm is not None and not (rows <= _FUSED_NORM_ROWS and kernels_apply(norm, x.dtype)):
            x, norm = normed(x, norm), None
        return x, norm

    def _is_small(self, x: torch.Tensor) -> bool:
        rows = x.numel() // max(1, self.width)
        return 0 < rows <= MAX_ROWS and cuda.takes(x) and self.records.is_cuda

    def _many_rows(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        step = max(TILE, PIECE // self.width // TILE * TILE)
        if self.outputs <= step:
            return F.linear(x, self._dense(self.records, x.dtype)[: self.outputs], bias)
        pieces = [F.linear(x, self._dense(each, x.dtype)) for each in torch.split(self.records, step // TILE)]
        y = torch.cat(pieces, dim=-1)[..., : self.outputs].contiguous()
        return y if bias is None else y.add_(bias)

    def _dense(self, records: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Dequantise some tiles ``[tiles, spans, bytes]`` to ``[tiles * 16, inputs]``, without regard to the order."""
        if not records.is_cuda or dtype not in (torch.float16, torch.bfloat16):
            return read_records(records, self.form)[:, : self.width].to(dtype)
        out = records.new_empty(len(records) * TILE, self.width, dtype=dtype)
        if len(records):
            with torch.cuda.device(records.device):
                cuda.module.unpack_weight(
                    self._view(records, len(out)),
                    out=cuda.address(out),
                    dtype=cuda.DTYPES[dtype],
                    stream=cuda.stream(out),
                )
        return out

    def view(self) -> Any:
        """Describe this weight to the kernels."""
        return self._view(self.records, self.outputs)

    def _view(self, records: torch.Tensor, outputs: int) -> Any:
        """Describe records to the kernels."""
        return cuda.module.PackedWeight(
            records=cuda.address(records),
            codes=self.form.codes,
            group=self.form.group,
            scales=cuda.DTYPES[self.form.scales],
            zeros=self.form.zeros,
            outputs=outputs,
            inputs=self.width,
        )

    def _few_rows(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        activation: Activation | None,
        norm: RowNorm | None,
    ) -> torch.Tensor:
        kernel = cuda.module.packed_product
        return queue_product(kernel, x, self.outputs, bias, residual, activation, norm, weight=self.view())
