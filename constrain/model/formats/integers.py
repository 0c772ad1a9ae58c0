"""Integers of compressed-tensors: ``pack-quantized``, of two to eight bits, and ``int-quantized``."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import torch

from constrain.kernels import (
    INTEGERS,
    Int8Weight,
    PackedWeight,
    RecordForm,
    fills_words,
    find_form,
    group_table,
    record_codes,
)
from constrain.kernels.weights.bits import WORD, unpack_bits
from constrain.model.formats.groups import ScaleGrid, order_of_groups, reordered
from constrain.model.formats.stored import DTYPES, FLOATS, StoredWeight

# Of few inputs, several widths make the same number of words; these are the likely ones first.
_BITS = (4, 8, 2, 3, 5, 6)


class _Integers(StoredWeight):
    """Integers with a scale, and perhaps a zero point, for each group of inputs."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """Bits of an integer."""

    @property
    def form(self) -> str:
        return f"int{self.bits}"

    @cached_property
    def grid(self) -> ScaleGrid:
        """Which elements share a scale.

        Raises:
            WeightsError: the shape of the scales fits no groups.
        """
        return self._find_grid()

    def _find_grid(self) -> ScaleGrid:
        scales = self.parts["weight_scale"].shape
        grid = ScaleGrid.of(scales, (self.shape[0], self.shape[1]), (1, 1))
        if grid is None or grid.columns == 1 < self.shape[1]:
            raise self.error("weight_scale", f"has shape {[*scales]}, which makes no groups of {[*self.shape]}")
        return grid

    @property
    def fills_words(self) -> bool:
        return fills_words(group_table(self.bits, self.shape[1], self.grid.columns))

    @property
    def records(self) -> RecordForm | None:
        scales, zeros = DTYPES[self.parts["weight_scale"].dtype], "weight_zero_point" in self.parts
        return find_form(record_codes(self.bits), self.grid.columns, self.shape[1], scales, zeros)

    @property
    def row_bytes(self) -> int:
        zero = "weight_zero_point" in self.parts
        return self.shape[1] * self.bits // 8 + self.grid.groups * (self._scale_bytes("weight_scale") + zero)

    def _check_parts(self) -> None:
        self._expect_type("weight_scale", *FLOATS)
        if "weight_zero_point" in self.parts:
            self._check_zeros()
        self._find_grid()

    @abstractmethod
    def _check_zeros(self) -> None:
        """Check type and shape of the zero points."""

    def _weight(self, codes: torch.Tensor, zeros: torch.Tensor | None, order: torch.Tensor | None) -> PackedWeight:
        """Return the weight of codes in bytes, and zero points that are codes ``[outputs, groups]``."""
        scales = self.grid.of_rows(self._finite("weight_scale")).contiguous()
        return INTEGERS[self.bits](codes, scales, self.grid.columns, zeros, order)


class PackedIntegers(_Integers):
    """``pack-quantized``: the codes of a row as a stream of bits in words, the lowest bits first.

    ``weight_packed``: int32 ``[outputs, words]``; codes have half of their range added. ``weight_shape``: outputs and
    inputs. ``weight_scale``: ``[outputs, groups]``, or one. ``weight_zero_point``, if there is one: int32
    ``[words, groups]``, packed down the outputs, or int8 ``[outputs, groups]`` or one. ``weight_g_idx``: the group of
    each input.
    """

    title = "pack-quantized"
    required = (("weight_packed", 2), ("weight_scale", None), ("weight_shape", 1))

    @cached_property
    def shape(self) -> tuple[int, int]:
        self._expect_type("weight_shape", "I32", "I64")
        self._expect_shape("weight_shape", (2,))
        outputs, inputs = self._stored("weight_shape").tolist()
        return outputs, inputs

    @cached_property
    def bits(self) -> int:
        """Bits of a code, by the number of words of a row.

        Raises:
            WeightsError: no width that is supported makes that number.
        """
        outputs, inputs = self.shape
        found = self.parts["weight_packed"].shape
        for bits in _BITS:
            if inputs > 0 and found == (outputs, _words(inputs, bits)):
                return bits
        raise self.error(
            "weight_packed",
            f"has shape {[*found]}, which {[outputs, inputs]} in 2, 3, 4, 5, 6 or 8 bits does not have",
        )

    @property
    def order_bytes(self) -> int:
        return 8 * self.shape[1] if "weight_g_idx" in self.parts else 0

    def packed(self) -> PackedWeight:
        """See :class:`StoredWeight`."""
        bytes_ = self._stored("weight_packed").contiguous().view(torch.uint8)
        codes = bytes_[:, : self.shape[1] * self.bits // 8].contiguous()
        order = self._order()
        if order is not None:
            codes = reordered(codes, self.bits, order)
        return self._weight(codes, self._zeros(), order)

    def _check_parts(self) -> None:
        self._expect_type("weight_packed", "I32")
        if self.shape[1] * self.bits % (8 if self.bits in (2, 4, 8) else WORD):
            raise self.error("weight_shape", f"says {[*self.shape]}; rows of {self.bits} bits do not end with a byte")
        if "weight_g_idx" in self.parts:
            self._expect_type("weight_g_idx", "I32", "I64")
            self._expect_shape("weight_g_idx", (self.shape[1],))
        super()._check_parts()

    def _check_zeros(self) -> None:
        outputs, groups = self.shape[0], self.grid.groups
        self._expect_type("weight_zero_point", "I32", "I8")
        if self.parts["weight_zero_point"].dtype == "I8":
            self._expect_shape("weight_zero_point", (outputs, groups), self.parts["weight_scale"].shape)
        else:
            self._expect_shape("weight_zero_point", (_words(outputs, self.bits), groups))

    def _zeros(self) -> torch.Tensor | None:
        if "weight_zero_point" not in self.parts:
            return None
        stored = self._stored("weight_zero_point")
        if stored.dtype is torch.int8:
            rows = self.grid.of_rows(stored) if stored.shape == self.parts["weight_scale"].shape else stored
            return rows.contiguous().view(torch.uint8) + (1 << self.bits - 1)
        return unpack_bits(stored.T, self.bits)[:, : self.shape[0]].T.contiguous()

    def _order(self) -> torch.Tensor | None:
        """Return the inputs in the order of their groups; ``None`` if that is their own."""
        if "weight_g_idx" not in self.parts:
            return None
        try:
            return order_of_groups(self._stored("weight_g_idx"), self.grid.columns)
        except ValueError as cause:
            raise self.error("weight_g_idx", str(cause)) from cause


class PlainIntegers(_Integers):
    """``int-quantized``: an integer a byte.

    ``weight``: int8 ``[outputs, inputs]``. ``weight_scale``: ``[outputs, groups]``, or one. ``weight_zero_point``, if
    there is one: int8 of that shape.
    """

    title = "int-quantized"
    required = (("weight", 2), ("weight_scale", None))
    bits = 8

    @property
    def shape(self) -> tuple[int, int]:
        outputs, inputs = self.parts["weight"].shape
        return outputs, inputs

    @property
    def fills_words(self) -> bool:
        return self._has_rows or super().fills_words

    @property
    def row_bytes(self) -> int:
        return self.shape[1] + 4 if self._has_rows else super().row_bytes

    def packed(self) -> PackedWeight:
        """See :class:`StoredWeight`."""
        weight = self._stored("weight")
        if self._has_rows and weight.device.type == "cpu":
            scales = self.grid.of_rows(self._finite("weight_scale").float()).squeeze(1)
            return Int8Weight.of_rows(weight, scales, self.shape[0])
        zeros = None
        if "weight_zero_point" in self.parts:
            zeros = _unsigned(self.grid.of_rows(self._stored("weight_zero_point"))).contiguous()
        return self._weight(_unsigned(weight), zeros, None)

    @property
    def _has_rows(self) -> bool:
        """Whether there is no more than a scale for each row."""
        return self.grid.groups == 1 and "weight_zero_point" not in self.parts

    def _check_zeros(self) -> None:
        self._expect_type("weight_zero_point", "I8")
        self._expect_shape("weight_zero_point", self.parts["weight_scale"].shape)


def _unsigned(signed: torch.Tensor) -> torch.Tensor:
    return signed.view(torch.uint8) ^ 128


def _words(count: int, bits: int) -> int:
    return -(-count * bits // WORD)
