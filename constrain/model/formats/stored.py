"""Quantised weights in files: their parts, checks of them, and the memory that they will take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from constrain.errors import WeightsError
from constrain.kernels import BLOCK, PackedWeight, RecordForm
from constrain.model.formats.settings import Quantization

Read = Callable[[str], torch.Tensor]
"""Returns a stored tensor by its name."""

FLOATS = ("F32", "F16", "BF16")
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1}
# Elements that are dequantised at a time.
_PIECE = 1 << 24
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file; ``dtype`` is its name in safetensors."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


class StoredWeight(ABC):
    """A weight ``[outputs, inputs]`` that files hold in quantised form. Each format has a class.

    Attributes:
        title: name of the format.
        separator: between the name of the layer and those of its parts.
        required: names of the parts that there must be, and their numbers of dimensions, or ``None`` for any.
        key: name of the layer, without ``.weight``.
        parts: its tensors, by the last part of their names.
        settings: the ``quantization_config`` of the model, or ``None``.
    """

    title: ClassVar[str]
    separator: ClassVar[str] = "."
    required: ClassVar[tuple[tuple[str, int | None], ...]]

    def __init__(self, key: str, parts: Mapping[str, StoredTensor], settings: Quantization | None, read: Read) -> None:
        """Describe a weight. ``read`` is called where values are needed."""
        self.key, self.parts, self.settings = key, parts, settings
        self._read = read

    @property
    @abstractmethod
    def form(self) -> str:
        """Name of the format for people: ``"int4"``, ``"fp8"`` and so on."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """``(outputs, inputs)``."""

    @property
    @abstractmethod
    def fills_words(self) -> bool:
        """Whether groups fill words of memory, which products on a CPU need."""

    @property
    def records(self) -> RecordForm | None:
        """Form of the packed weight for products on a GPU; ``None`` if these do not take it packed."""
        return None

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Memory of a row when it is packed on a CPU."""

    @property
    def has_order(self) -> bool:
        """Whether the inputs are stored in an order of their own.

        Raises:
            WeightsError: the order cannot be.
        """
        return self._order() is not None

    @property
    def order_bytes(self) -> int:
        """Memory of the order of the inputs, when it is packed on a CPU."""
        return 0

    @property
    def dtype(self) -> torch.dtype:
        """The type of float that the weight was made from, as far as the scales say so."""
        return next((DTYPES[part.dtype] for part in self.parts.values() if part.dtype in DTYPES), torch.bfloat16)

    def stays_packed(self, device: torch.device) -> bool:
        """Whether products on a device can be computed without dequantising the whole weight before."""
        return self.fills_words if device.type == "cpu" else self.records is not None

    def memory(self, rows: int, device: torch.device) -> int:
        """Bytes of the weight with ``rows`` rows when it is packed; zeros are added as products want them."""
        if device.type != "cpu" and self.records is not None:
            return self.records.size(rows, self.shape[1]) + self.order_bytes // 2
        return -(-rows // BLOCK) * BLOCK * self.row_bytes + self.order_bytes

    def memory_together(self, others: Sequence[StoredWeight], device: torch.device) -> int:
        """Bytes in memory of this weight and of ``others``, which have the same inputs and are loaded as one weight."""
        apart = sum(each.memory(each.shape[0], device) for each in (self, *others))
        # On a GPU, an order takes half the memory.
        joined = device.type != "cpu" and self.joins(others)
        return apart - sum(each.order_bytes // 2 for each in others) if joined else apart

    def joins(self, others: Sequence[StoredWeight]) -> bool:
        """Whether a GPU multiplies by this weight and ``others``, which have the same inputs, as by one weight."""
        order = self._order()
        found = [each._order() for each in others]
        if order is None:
            return all(other is None for other in found)
        return all(other is not None and torch.equal(order, other) for other in found)

    def fill(self, target: torch.Tensor) -> None:
        """Read the weight, dequantise it on the device of ``target``, and fill that with its first rows.

        Raises:
            WeightsError: a part has values that cannot be.
        """
        fill_rows(self.packed(), target)

    @abstractmethod
    def packed(self) -> PackedWeight:
        """Read the weight.

        Raises:
            WeightsError: a part has values that cannot be.
        """

    def check(self, shape: tuple[int, ...]) -> None:
        """Check that all parts are there, that they fit together, and that they make a weight of this shape.

        Raises:
            WeightsError: they do not.
        """
        for name, dimensions in self.required:
            if name not in self.parts:
                raise WeightsError(f"{self._file()}: {self.key} has no {name}, which {self.title} weights need")
            if dimensions is not None and len(self.parts[name].shape) != dimensions:
                raise self.error(name, f"has shape {[*self.parts[name].shape]}, not one of {dimensions} dimensions")
        if not self._fits(shape):
            raise WeightsError(
                f"{self._file()}: the {self.title} weight {self.key} has shape {[*self.shape]}, but config.json asks "
                f"for {[*shape]}"
            )
        self._check_parts()

    def _order(self) -> torch.Tensor | None:
        """Read the inputs in the order in which they are stored; ``None`` if that is their own.

        Raises:
            WeightsError: the order cannot be.
        """
        return None

    @abstractmethod
    def _check_parts(self) -> None:
        """Raise an error if types or shapes of the parts do not fit together."""

    def _fits(self, shape: tuple[int, ...]) -> bool:
        return self.shape == shape

    def _expect_type(self, part: str, *dtypes: str) -> None:
        """Raise an error if a part is of none of these types."""
        if self.parts[part].dtype not in dtypes:
            raise self.error(part, f"is of type {self.parts[part].dtype}; read are {', '.join(dtypes)}")

    def _expect_shape(self, part: str, *shapes: tuple[int, ...]) -> None:
        """Raise an error if a part has none of these shapes."""
        if self.parts[part].shape not in shapes:
            wanted = " or ".join(str([*shape]) for shape in shapes)
            raise self.error(part, f"has shape {[*self.parts[part].shape]}, not {wanted}")

    def _stored(self, part: str) -> torch.Tensor:
        return self._read(f"{self.key}{self.separator}{part}")

    def _finite(self, part: str) -> torch.Tensor:
        """Read a part with floats.

        Raises:
            WeightsError: one of them is infinite or not a number.
        """
        tensor = self._stored(part)
        if not tensor.float().isfinite().all():
            raise self.error(part, "has values that are not finite")
        return tensor

    def _powers(self, part: str) -> torch.Tensor:
        """Read a part with powers of two, stored as their exponents plus 127, as bfloat16.

        Raises:
            WeightsError: one of them is not a number.
        """
        stored = self._stored(part).view(torch.uint8)
        if (stored == 255).any():
            raise self.error(part, "has values that are not numbers")
        # The bits of a bfloat16: the exponent, but for the lowest one, which only a subnormal number has.
        exponents = stored.to(torch.int16)
        return torch.where(exponents == 0, 1 << 6, exponents << 7).view(torch.bfloat16)

    def _scale_bytes(self, part: str) -> int:
        return _BYTES[self.parts[part].dtype]

    def error(self, part: str, problem: str) -> WeightsError:
        """Return an error that names file and tensor."""
        return WeightsError(f"{self.parts[part].file}: tensor {self.key}{self.separator}{part} {problem}")

    def _file(self) -> Path:
        return next(iter(self.parts.values())).file


def fill_rows(weight: PackedWeight, target: torch.Tensor) -> None:
    """Fill ``target`` ``[outputs, inputs]`` with the first rows of a weight, dequantised on its device."""
    weight = weight.to(target.device)
    outputs, inputs = target.shape
    step = max(1, _PIECE // max(1, inputs))
    for start in range(0, outputs, step):
        rows = slice(start, min(start + step, outputs))
        target[rows] = weight.dequantized(rows, target.dtype)
