"""Groups of elements of a weight that share a scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from constrain.kernels.weights.bits import pack_bits, unpack_bits


@dataclass(frozen=True)
class ScaleGrid:
    """Which elements of a weight share a scale: blocks of ``rows`` by ``columns``, the last of which may be smaller.

    Attributes:
        shape: ``(outputs, inputs)`` of the weight.
        rows, columns: of a block.
    """

    shape: tuple[int, int]
    rows: int
    columns: int

    @classmethod
    def of(cls, stored: tuple[int, ...], shape: tuple[int, int], block: tuple[int, int]) -> ScaleGrid | None:
        """Find the grid from the shape of the stored scales; ``None`` if they fit no grid.

        Scales are one, one a row, one for each group of inputs of a row, all of one size, or one for each block.
        """
        outputs, inputs = shape
        if stored in ((), (1,), (1, 1)):
            return cls(shape, max(1, outputs), max(1, inputs))
        if stored == (outputs,):
            return cls(shape, 1, max(1, inputs))
        if len(stored) == 2 and stored[0] == outputs and stored[1] and inputs % stored[1] == 0:
            return cls(shape, 1, inputs // stored[1])
        blocks = cls(shape, *block)
        return blocks if stored == (-(-outputs // block[0]), blocks.groups) else None

    @property
    def groups(self) -> int:
        """Number of scales of a row."""
        return -(-self.shape[1] // self.columns)

    def of_rows(self, scales: torch.Tensor) -> torch.Tensor:
        """Return the scales of each row, ``[outputs, groups]``."""
        rows = scales.reshape(-1, self.groups)
        return rows.repeat_interleave(self.rows, dim=0)[: self.shape[0]] if self.rows > 1 else rows


def order_of_groups(listed: torch.Tensor, size: int) -> torch.Tensor | None:
    """Return the inputs in the order of their groups, int32 ``[inputs]``; ``None`` if that is their own.

    Args:
        listed: the group of each input; writers that know none leave -1.
        size: inputs of a group; the last may have less.

    Raises:
        ValueError: groups have other sizes.
    """
    own = torch.arange(len(listed), device=listed.device) // size
    if (listed == -1).all() or torch.equal(listed.long(), own):
        return None
    groups, order = listed.long().sort(stable=True)
    if not torch.equal(groups, own):
        raise ValueError(f"does not name a group for each input, each group {size} times")
    return order.int()


def reordered(codes: torch.Tensor, bits: int, order: torch.Tensor) -> torch.Tensor:
    """Return codes in bytes ``[outputs, n]`` with the inputs in another order."""
    if bits == 8:
        return codes[:, order]
    return pack_bits(unpack_bits(codes, bits)[:, order], bits)
