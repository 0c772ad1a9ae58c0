"""Integers of several widths as integers of four bits, which one kernel multiplies.

The inputs of a weight may have codes of different widths. An integer of up to four bits fits into one of four bits. A
wider one is ``16 * high + low``: its input has two columns, one with the high digits, whose scale is 16 times as large,
and one with the low. Nothing is rounded. Activations are gathered in the order of the columns::

    inputs    a    b    c    d            bits 8, 8, 4, 3
    columns   a_h  b_h  a_l  b_l  c  d    four bits each
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise

import torch
from torch.nn.functional import pad

from constrain.kernels.weights.bits import FLOAT4, Groups
from constrain.kernels.weights.fragments import BITS, MIDDLES, SPAN, RecordForm, make_records
from constrain.kernels.weights.tensor_core import TensorCoreWeight

_BITS, _MIDDLE = BITS["int4"], MIDDLES["int4"]
_SIZES = (128, 32)
_WHOLE, _HIGH, _LOW = range(3)
# Weights of the same inputs are joined if that takes no more memory than this many times what they take apart.
_MAX_GROWTH = 1.125


@dataclass(frozen=True)
class IntegerRows:
    """Integers with a scale for each group of inputs of a row.

    Attributes:
        values: int8 ``[outputs, inputs]``.
        scales: float16 ``[outputs, groups]``.
        groups: bits and inputs of each group.
    """

    values: torch.Tensor
    scales: torch.Tensor
    groups: Groups


@dataclass(frozen=True)
class Columns:
    """The columns of weights of the same inputs.

    Attributes:
        form: of their records; each of its groups of columns is within a group of inputs of every weight.
        spans: places of inputs ``[start, end)`` that have codes of the same widths, and the digits of these columns;
            each is filled up with columns of zeros to whole groups.
    """

    form: RecordForm
    spans: tuple[tuple[int, int, int], ...]

    @property
    def count(self) -> int:
        """Number of columns."""
        return sum(self._padded(start, end) for start, end, _ in self.spans)

    @property
    def shift(self) -> int:
        """The offset added to integers before they are split into digits, which is the zero point of the low digit.

        Low digits around zero need no zero points; but then eight bits have no room for the high digit of the largest.
        """
        return 0 if self.form.zeros else _MIDDLE

    def size(self, outputs: int) -> int:
        """Bytes of the records of ``outputs`` rows, and of the order of the columns."""
        return self.form.size(outputs, self.count) + 4 * self.count

    def places(self) -> torch.Tensor:
        """Return the place of the input of each column, int64 ``[columns]``; -1 for columns of zeros."""
        parts = [
            pad(torch.arange(start, end), (0, self._padded(start, end) - end + start), value=-1)
            for start, end, _ in self.spans
        ]
        return torch.cat(parts)

    def digits(self) -> torch.Tensor:
        """Return which digits each column has, uint8 ``[columns]``."""
        counts = torch.tensor([self._padded(start, end) for start, end, _ in self.spans])
        return torch.tensor([digit for _, _, digit in self.spans], dtype=torch.uint8).repeat_interleave(counts)

    def _padded(self, start: int, end: int) -> int:
        return -(-(end - start) // self.form.group) * self.form.group


def find_columns(tables: Sequence[Groups]) -> Columns:
    """Return the columns of weights of the same inputs, by the groups of each, that take the least memory."""
    return _find_columns(tuple(tables))


@lru_cache(64)  # the experts of a layer have the same groups
def _find_columns(tables: tuple[Groups, ...]) -> Columns:
    spans = tuple(_spans(tables))
    zeros = any(bits > 6 for table in tables for bits, _ in table)
    found = [Columns(RecordForm("int4", size, torch.float16, zeros), spans) for size in _SIZES]
    return min(found, key=lambda columns: columns.size(SPAN))


def share_columns(tables: Sequence[Groups], outputs: Sequence[int]) -> bool:
    """Return whether weights of the same inputs, by their groups and numbers of rows, are better joined than apart."""
    apart = sum(find_columns([table]).size(rows) for table, rows in zip(tables, outputs, strict=True))
    return find_columns(tables).size(sum(outputs)) <= _MAX_GROWTH * apart


def as_nibbles(
    parts: Iterable[IntegerRows], tables: Sequence[Groups], order: torch.Tensor | None, dtype: torch.dtype
) -> TensorCoreWeight:
    """Arrange the rows of several weights of the same inputs as one of four bits.

    Args:
        parts: the rows, some at a time.
        tables: the groups of each weight.
        order: int64 ``[inputs]``, the input of each place; ``None`` for their own order.
        dtype: of rows that are taken out.
    """
    columns = find_columns(tables)
    form, places, digits = columns.form, columns.places(), columns.digits()
    pieces = [
        (_codes(part.values, places, digits, columns.shift), _scales(part, places, digits, form)) for part in parts
    ]
    codes, scales = (torch.cat(each) for each in zip(*pieces, strict=True))
    if not scales.half().isfinite().all():
        form = replace(form, scales=torch.float32)
    zeros = _zeros(digits, columns).to(codes.device).expand(len(codes), -1) if form.zeros else None
    records = make_records(codes, scales, zeros, form.group, form)
    inputs = places.clamp(min=0).to(codes.device)
    inputs = inputs if order is None else order[inputs]
    return TensorCoreWeight(records, form, len(codes), sum(size for _, size in tables[0]), dtype, inputs.int())


def is_integer(groups: Groups) -> bool:
    """Return whether the codes of all groups are integers."""
    return all(kind < FLOAT4 for kind, _ in groups)


def _spans(tables: Sequence[Groups]) -> Iterator[tuple[int, int, int]]:
    """Divide the places of inputs where a group of any table begins, and name the digits."""
    ends = {0}.union(*(accumulate(inputs for _, inputs in table) for table in tables))
    widths = torch.stack([_of_inputs([bits for bits, _ in table], table) for table in tables])
    wide = (widths > _BITS).any(dim=0).tolist()
    for start, end in pairwise(sorted(ends)):
        for digit in (_HIGH, _LOW) if wide[start] else (_WHOLE,):
            yield start, end, digit


def _of_inputs(values: Sequence[int], groups: Groups) -> torch.Tensor:
    """Repeat a value of each group for each of its inputs."""
    return torch.tensor(values).repeat_interleave(torch.tensor([inputs for _, inputs in groups]))


def _codes(values: torch.Tensor, places: torch.Tensor, digits: torch.Tensor, shift: int) -> torch.Tensor:
    """Return the codes of the columns, uint8 ``[outputs, columns]``."""
    places, digits = places.to(values.device), digits.to(values.device)
    shifted = values[:, places.clamp(min=0)].to(torch.int16).masked_fill_(places < 0, 0)
    whole, high, low = shifted + _MIDDLE, (shifted + shift >> _BITS) + _MIDDLE, shifted + shift & 15
    return torch.where(digits == _WHOLE, whole, torch.where(digits == _HIGH, high, low)).to(torch.uint8)


def _scales(part: IntegerRows, places: torch.Tensor, digits: torch.Tensor, form: RecordForm) -> torch.Tensor:
    """Return the scales of the groups of columns, float32 ``[outputs, groups]``."""
    groups = _of_inputs(range(len(part.groups)), part.groups)[places[:: form.group]]
    factors = torch.where(digits[:: form.group] == _HIGH, 1 << _BITS, 1)
    return part.scales[:, groups.to(part.scales.device)].float() * factors.to(part.scales.device)


def _zeros(digits: torch.Tensor, columns: Columns) -> torch.Tensor:
    """Return the zero points of the groups of columns, uint8 ``[groups]``."""
    return torch.where(digits[:: columns.form.group] == _LOW, columns.shift, _MIDDLE).to(torch.uint8)
