"""EXL2: groups of inputs with codes of two to eight bits each, the inputs in an order of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch

from constrain.kernels import InterleavedWeight, PackedWeight, RecordForm
from constrain.kernels.weights.bits import WORD, Groups, middles, runs, unpack_bits
from constrain.kernels.weights.nibbles import Columns, find_columns, share_columns
from constrain.model.formats.stored import StoredWeight

_BITS = {2, 3, 4, 5, 6, 8}


class EXL2(StoredWeight):
    """EXL2: a weight is ``(q - middle) * (s + 1)**2 * (q_scale_max / 256)``, the scales in float16.

    Here ``q`` is a code, and ``s`` the four bits of its group and output. ``q_weight``: int32 ``[words, outputs]``,
    outputs rounded up to a multiple of 32. ``q_groups``: int16, for each group its bits and its first word.
    ``q_scale``: int32 ``[groups, outputs / 8]``. ``q_scale_max``: ``[groups]``. ``q_invperm``: the place of each input.
    """

    title, form = "EXL2", "exl2"
    required = (("q_weight", 2), ("q_groups", 1), ("q_scale", 2), ("q_scale_max", 1), ("q_invperm", 1))
    fills_words = has_order = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.parts["q_weight"].shape[1], self.parts["q_invperm"].shape[0]

    @property
    def row_bytes(self) -> int:
        return 4 * self.parts["q_weight"].shape[0] + 2 * self.parts["q_scale"].shape[0]

    @property
    def order_bytes(self) -> int:
        return 8 * self.shape[1]

    @property
    def records(self) -> RecordForm:
        return self._columns.form

    def memory(self, rows: int, device: torch.device) -> int:
        """See :class:`StoredWeight`."""
        return super().memory(rows, device) if device.type == "cpu" else self._columns.size(rows)

    def memory_together(self, others: Sequence[StoredWeight], device: torch.device) -> int:
        """See :class:`StoredWeight`; as :class:`~constrain.kernels.InterleavedWeight` are joined for a GPU."""
        if device.type == "cpu" or not self.joins(others):
            return sum(each.memory(each.shape[0], device) for each in (self, *others))
        same = [self, *(other for other in others if isinstance(other, EXL2))]
        return find_columns([each._groups for each in same]).size(sum(each.shape[0] for each in same))

    def joins(self, others: Sequence[StoredWeight]) -> bool:
        """See :class:`StoredWeight`."""
        same = [self, *(other for other in others if isinstance(other, EXL2))]
        if len(same) <= len(others) or not super().joins(others):
            return False
        return share_columns([each._groups for each in same], [each.shape[0] for each in same])

    def packed(self) -> PackedWeight:
        """See :class:`StoredWeight`."""
        groups = self._groups
        stored = self._stored("q_weight")
        words = stored ^ torch.cat([_signs(*group) for group in runs(groups)]).unsqueeze(1).to(stored.device)
        return InterleavedWeight.of_rows(words.T, self._scales().T, None, self._order(), groups)

    def _fits(self, shape: tuple[int, ...]) -> bool:
        rounded = (shape[0] + 31) // 32 * 32
        return len(shape) == 2 and shape[1] == self.shape[1] and self.shape[0] in (shape[0], rounded)

    def _check_parts(self) -> None:
        outputs, inputs = self.shape
        groups = self.parts["q_scale"].shape[0]
        self._expect_type("q_weight", "I32")
        self._expect_type("q_invperm", "I32", "I16")
        self._expect_shape("q_invperm", (inputs,))
        self._expect_type("q_scale", "I32")
        self._expect_shape("q_scale", (groups, outputs // 8))
        self._expect_type("q_scale_max", "F16")
        self._expect_shape("q_scale_max", (groups,))
        self._expect_type("q_groups", "I16")
        self._expect_shape("q_groups", (2 * groups,))
        if outputs % 8:
            raise self.error("q_weight", f"is of {outputs} outputs, which is not a multiple of 8")

    @cached_property
    def _columns(self) -> Columns:
        """The columns of four bits that the weight has on a GPU."""
        return find_columns([self._groups])

    @cached_property
    def _groups(self) -> Groups:
        """Return bits and inputs of each group."""
        pairs = (self._stored("q_groups").long() & 0xFFFF).view(-1, 2).tolist()
        ends = [start for _, start in pairs[1:]] + [self.parts["q_weight"].shape[0]]
        spans = [(bits, (end - start) * WORD) for (bits, start), end in zip(pairs, ends, strict=True)]
        whole = all(bits in _BITS and span > 0 and span % bits == 0 for bits, span in spans)
        groups = tuple((bits, span // bits) for bits, span in spans) if whole else ()
        if [start for _, start in pairs[:1]] != [0] or sum(inputs for _, inputs in groups) != self.shape[1]:
            raise self.error("q_groups", f"does not divide {self.shape[1]} inputs into groups: {pairs[:4]} and so on")
        return groups

    def _scales(self) -> torch.Tensor:
        roots = unpack_bits(self._stored("q_scale"), 4).half() + 1
        return roots.square() * (self._finite("q_scale_max") / 256).unsqueeze(1)

    def _order(self) -> torch.Tensor:
        places = self._stored("q_invperm").long() & 0xFFFFFFFF
        if not torch.equal(places.sort().values, torch.arange(len(places), device=places.device)):
            raise self.error("q_invperm", "is not a permutation")
        return places.argsort()


def _signs(bits: int, inputs: int) -> torch.Tensor:
    """Return the words that make the codes of a group signed, int32 ``[inputs * bits / 32]``."""
    words = inputs * bits // WORD
    return middles(bits, torch.device("cpu")).repeat(-(-words // bits))[:words]
