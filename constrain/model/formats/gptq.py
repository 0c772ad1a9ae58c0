"""GPTQ, of two, three, four and eight bits, and AWQ."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import torch

from constrain.kernels import (
    INTEGERS,
    Int4Weight,
    PackedWeight,
    RecordForm,
    fills_words,
    find_form,
    group_table,
    record_codes,
)
from constrain.kernels.weights.bits import WORD, pack_nibbles, unpack_bits, viewed
from constrain.model.formats.groups import order_of_groups, reordered
from constrain.model.formats.stored import DTYPES, FLOATS, StoredWeight

_BITS = (2, 3, 4, 8)
# Positions of eight outputs in a word of AWQ.
_AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]


class _Columns(StoredWeight):
    """Weights that are stored with the outputs side by side, with scales and zero points for each group of inputs.

    ``qweight``: int32, words of codes. ``qzeros``: int32 ``[groups, words]``. ``scales``: ``[groups, outputs]``.
    """

    required = (("qweight", 2), ("qzeros", 2), ("scales", 2))

    @property
    @abstractmethod
    def bits(self) -> int:
        """Bits of a code."""

    @property
    def form(self) -> str:
        return f"int{self.bits}"

    @property
    def fills_words(self) -> bool:
        return fills_words(group_table(self.bits, self.shape[1], self.group_size))

    @property
    def records(self) -> RecordForm | None:
        scales = DTYPES[self.parts["scales"].dtype]
        return find_form(record_codes(self.bits), self.group_size, self.shape[1], scales, not self._symmetric)

    @property
    def row_bytes(self) -> int:
        groups = self.parts["scales"].shape[0]
        return self.shape[1] * self.bits // 8 + groups * (self._scale_bytes("scales") + (not self._symmetric))

    @cached_property
    def group_size(self) -> int:
        """Inputs of a group: what the config says, else the smallest power of two that makes no more groups."""
        declared = self.settings.group_size if self.settings else None
        if declared is not None:
            return declared if declared > 0 else self.shape[1]
        size, groups = 1, self.parts["scales"].shape[0]
        while size * groups < self.shape[1]:
            size *= 2
        return size

    @property
    def _symmetric(self) -> bool:
        return self.settings is not None and self.settings.symmetric

    def _fits(self, shape: tuple[int, ...]) -> bool:
        rounded = (shape[0] + 31) // 32 * 32
        return len(shape) == 2 and shape[1] == self.shape[1] and self.shape[0] in (shape[0], rounded)

    def _check_parts(self) -> None:
        outputs, inputs = self.shape
        declared = self.settings.bits if self.settings else None
        if declared not in (None, self.bits):
            raise self.error("qweight", f"has codes of {self.bits} bits, but config.json says {declared}")
        groups = -(-inputs // self.group_size)
        self._expect_type("qweight", "I32")
        self._expect_type("scales", *FLOATS)
        self._expect_shape("scales", (groups, outputs))
        self._expect_type("qzeros", "I32")
        self._expect_shape("qzeros", (groups, outputs * self.bits // WORD))

    def _scales(self) -> torch.Tensor:
        return self._finite("scales").T.contiguous()

    def _without_middle(self, zeros: torch.Tensor) -> torch.Tensor | None:
        """Return zero points as ``[outputs, groups]``; ``None`` if the weight is symmetric."""
        if self._symmetric and (zeros == 1 << self.bits - 1).all():
            return None
        return zeros.T.contiguous()


class GPTQ(_Columns):
    """GPTQ: each output is a stream of codes down its column.

    The first version of the format has zero points less one, so that a zero point of 0 is stored as the highest code.
    ``g_idx``, if there is one, is the group of each input; writers that have no order may leave zeros.
    """

    title = "GPTQ"

    @cached_property
    def bits(self) -> int:
        """Bits of a code, by the number of words that have the zero points.

        Raises:
            WeightsError: no width that is supported makes that number.
        """
        outputs, words = self.parts["qweight"].shape[1], self.parts["qzeros"].shape[1]
        for bits in _BITS:
            if words > 0 and words * WORD == outputs * bits:
                return bits
        raise self.error("qzeros", f"has {words} words for {outputs} outputs, which is none of 2, 3, 4 and 8 bits")

    @property
    def shape(self) -> tuple[int, int]:
        words, outputs = self.parts["qweight"].shape
        return outputs, words * WORD // self.bits

    @property
    def order_bytes(self) -> int:
        return 8 * self.shape[1] if self.settings is not None and self.settings.ordered else 0

    def packed(self) -> PackedWeight:
        """See :class:`StoredWeight`."""
        codes = viewed(self._stored("qweight").T, torch.uint8)
        order = self._order()
        if order is not None:
            codes = reordered(codes, self.bits, order)
        return INTEGERS[self.bits](codes, self._scales(), self.group_size, self._zeros(), order)

    def _check_parts(self) -> None:
        super()._check_parts()
        if self.shape[1] % 8:
            raise self.error("qweight", f"is of {self.shape[1]} inputs, which is not a multiple of 8")
        if "g_idx" in self.parts:
            self._expect_type("g_idx", "I32", "I64")
            self._expect_shape("g_idx", (self.shape[1],))

    def _zeros(self) -> torch.Tensor | None:
        stored = unpack_bits(self._stored("qzeros"), self.bits)
        offset = self.settings.zero_offset if self.settings else 1
        return self._without_middle(stored + offset & (1 << self.bits) - 1)

    def _order(self) -> torch.Tensor | None:
        listed = self._stored("g_idx") if "g_idx" in self.parts else torch.zeros(1)
        if not listed.any():
            return None
        try:
            return order_of_groups(listed, self.group_size)
        except ValueError as cause:
            raise self.error("g_idx", str(cause)) from cause


class AWQ(_Columns):
    """AWQ in the layout ``gemm``: words of eight outputs each, in an order of their own; four bits."""

    title, bits = "AWQ", 4

    @property
    def shape(self) -> tuple[int, int]:
        inputs, words = self.parts["qweight"].shape
        return words * 8, inputs

    def packed(self) -> PackedWeight:
        """See :class:`StoredWeight`."""
        codes = pack_nibbles(_awq_codes(self._stored("qweight")).T.contiguous())
        zeros = self._without_middle(_awq_codes(self._stored("qzeros")))
        return Int4Weight(codes, self._scales(), self.group_size, zeros)

    def _check_parts(self) -> None:
        super()._check_parts()
        if self.shape[1] % 2:
            raise self.error("qweight", f"is of {self.shape[1]} inputs, which is odd")


def _awq_codes(words: torch.Tensor) -> torch.Tensor:
    """Unpack int32 ``[..., n]`` to uint8 ``[..., 8 * n]``."""
    codes = unpack_bits(words, 4)
    return codes.view(*words.shape, 8)[..., _AWQ_PLACES].flatten(-2)
