"""Access to the safetensors files of a model folder.

Only headers are read at first. Tensors are copied directly from the mapped file to their destination, so that a model
is never in memory twice. A :class:`~constrain.model.tensor_reader.TensorReader` loads many tensors to GPUs faster.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from constrain.errors import WeightsError
from constrain.kernels import GroupedWeight, PackedWeight
from constrain.model.formats import Quantization, StackedFloat4, StoredTensor, StoredWeight, find_quantized
from constrain.model.tensor_reader import Region, TensorReader
from constrain.tokenizer.files import check_content, read_json_object

INDEX_FILE = "model.safetensors.index.json"

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class TensorFiles:
    """Tensors of safetensors files, by name.

    A quantised weight has the name of the weight that it dequantises to.

    Attributes:
        tensors: the stored tensors.
        files: the files.
        quantized: the quantised weights.

    Raises:
        WeightsError: there is no safetensors file, one cannot be read, two hold the same tensor, or the index names
            a tensor or file that is missing or outside of the folder.
    """

    def __init__(self, files: Iterable[Path], quantization: Quantization | None = None) -> None:
        """Read the headers of files. ``quantization`` is what the config says of quantised weights."""
        self.tensors: dict[str, StoredTensor] = {}
        self.files = list(files)
        for file in self.files:
            self._add(file)
        self._open: dict[Path, Any] = {}
        self._device = torch.device("cpu")
        self.quantized: dict[str, StoredWeight] = find_quantized(self.tensors, quantization, self.stored)

    @classmethod
    def of_folder(cls, folder: Path, quantization: Quantization | None = None) -> TensorFiles:
        """Open the files of a folder: those that its index lists if it has one, else all but a second form of them."""
        index = folder / INDEX_FILE
        listed = _read_index(index) if index.exists() else {}
        if listed and not any((folder / name).exists() for name in listed.values()):
            # Quantised weights are often published together with the index of the original weights.
            unlisted = cls(sorted(folder.glob("*.safetensors")), quantization)
            if unlisted.quantized:
                return unlisted
        names = {folder / name for name in listed.values()} or _unlisted(folder)
        tensors = cls(sorted(names), quantization)
        if not tensors.files:
            raise WeightsError(f"{folder}: no *.safetensors file; weights in other formats must be converted first")
        for key, name in listed.items():
            if key not in tensors or tensors.tensors[key].file.name != name:
                raise WeightsError(f"{index}: says that {key} is in {name}, but it is not")
        return tensors

    def __contains__(self, key: str) -> bool:
        return key in self.tensors or key in self.quantized

    def require(self, key: str, shape: tuple[int, ...]) -> None:
        """Check that a tensor exists.

        Raises:
            WeightsError: it is missing, of another shape, or of an unsupported type.
        """
        quantized = self.quantized.get(key)
        if quantized is not None:
            quantized.check(shape)
            return
        stored = self.tensors.get(key)
        if stored is None:
            raise WeightsError(f"{self.files[0].parent}: no tensor {key} in any safetensors file")
        if stored.shape != shape:
            raise WeightsError(
                f"{stored.file}: tensor {key} has shape {list(stored.shape)}, but config.json asks for {list(shape)}"
            )
        if stored.dtype not in _DTYPES:
            raise WeightsError(f"{stored.file}: tensor {key} is of type {stored.dtype}; read are {', '.join(_DTYPES)}")

    def dtype(self, key: str) -> torch.dtype:
        """Stored dtype of an existing tensor, or of the scales if it is quantised."""
        return self.quantized[key].dtype if key in self.quantized else _DTYPES[self.tensors[key].dtype]

    def copy(self, key: str, target: torch.Tensor) -> None:
        """Fill ``target`` with a tensor of its shape, converted to its dtype and device.

        Raises:
            WeightsError: :meth:`require` raises it, or the file has changed and can no longer be read.
        """
        self.require(key, tuple(target.shape))
        if key in self.quantized:
            with self._read_to(target.device):
                self.quantized[key].fill(target)
        else:
            target.copy_(self.stored(key))

    def stays_packed(self, key: str, device: torch.device) -> bool:
        """Whether ``key`` is a quantised weight that products on a device can be computed with as it is."""
        return key in self.quantized and self.quantized[key].stays_packed(device)

    def packed(self, key: str, shape: tuple[int, int], device: torch.device) -> PackedWeight | None:
        """See :class:`~constrain.model.tensor_reader.TensorSource`.

        Raises:
            WeightsError: as for :meth:`copy`.
        """
        self.require(key, shape)
        if not self.stays_packed(key, device):
            return None
        with self._read_to(device):
            weight = self.quantized[key].packed()
        if weight.shape == shape:
            return weight
        chosen = weight[torch.arange(shape[0], device=device)]
        assert isinstance(chosen, PackedWeight)
        return chosen

    def packed_experts(self, key: str, shape: tuple[int, ...]) -> list[GroupedWeight] | None:
        """See :class:`~constrain.model.tensor_reader.TensorSource`.

        Raises:
            WeightsError: as for :meth:`copy`.
        """
        self.require(key, shape)
        stored = self.quantized.get(key)
        return stored.packed_experts() if isinstance(stored, StackedFloat4) else None

    def reader(self, tensors: Iterable[tuple[str, tuple[int, ...]]]) -> TensorReader:
        """Create a reader that prefetches tensors.

        Args:
            tensors: names and shapes, in the order in which they will be copied.

        Raises:
            WeightsError: :meth:`require` raises it, or a file has changed. The reader may raise it too.
        """
        plain = []
        for key, shape in tensors:
            self.require(key, shape)
            if key not in self.quantized:
                plain.append(key)
        headers = {file: _read_header(file) for file in {self.tensors[key].file for key in plain}}
        regions = [self._region(key, headers[self.tensors[key].file]) for key in plain]
        return TensorReader(regions, self)

    @contextmanager
    def _read_to(self, device: torch.device) -> Iterator[None]:
        """Have :meth:`stored` read to ``device``, so that weights are dequantised or arranged there."""
        self._device = device
        try:
            yield
        finally:
            self._device = torch.device("cpu")

    def stored(self, key: str) -> torch.Tensor:
        """Read an existing tensor in its stored dtype.

        Raises:
            WeightsError: the file has changed and can no longer be read.
        """
        path = self.tensors[key].file
        with nullcontext(self._open[path]) if path in self._open else _opened(path) as file:
            tensor: torch.Tensor = file.get_tensor(key)
            return tensor.to(self._device)

    @contextmanager
    def kept_open(self) -> Iterator[TensorFiles]:
        """Read tensors without opening their file again for each, which takes a while where a file has thousands.

        Raises:
            WeightsError: a file has changed and can no longer be read.
        """
        if self._open:
            yield self
            return
        with ExitStack() as stack:
            self._open = {file: stack.enter_context(_opened(file)) for file in self.files}
            try:
                yield self
            finally:
                self._open = {}

    def has_idle_bias(self, key: str) -> bool:
        """Whether ``key`` is a bias of zeros, which programs that write GPTQ add to every weight."""
        weight = self.quantized.get(f"{key.removesuffix('.bias')}.weight")
        return weight is not None and weight.title in ("GPTQ", "AWQ") and not self.stored(key).any()

    def _region(self, key: str, header: _Header) -> Region:
        stored, dtype = self.tensors[key], self.dtype(key)
        entry = header.tensors.get(key)
        if entry is None or (entry["dtype"], tuple(entry["shape"])) != (stored.dtype, stored.shape):
            raise WeightsError(f"{stored.file}: tensor {key} has changed since the config was prepared")
        start = header.size + entry["data_offsets"][0]
        return Region(key, stored.file, dtype, start, math.prod(stored.shape) * dtype.itemsize)

    def _add(self, path: Path) -> None:
        with _opened(path) as file:
            for key in file.keys():  # noqa: SIM118  a file is no mapping
                header = file.get_slice(key)
                if key in self.tensors:
                    raise WeightsError(f"{path}: tensor {key} is in {self.tensors[key].file.name} too")
                self.tensors[key] = StoredTensor(path, tuple(header.get_shape()), header.get_dtype())


@dataclass(frozen=True)
class _Header:
    """Header of a safetensors file: entries by the names of tensors, and the offset of the data in bytes."""

    tensors: dict[str, Any]
    size: int


def _read_header(path: Path) -> _Header:
    """Read the header of a file, after safetensors has validated it."""
    with _opened(path), path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return _Header(json.loads(file.read(length)), 8 + length)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file; errors name it."""
    try:
        # Reading a device or a pipe might never end. Links are allowed, since download caches contain them.
        if not stat.S_ISREG(path.stat().st_mode):
            raise WeightsError(f"{path}: not a regular file")
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except OSError as cause:
        raise WeightsError(f"{path}: cannot be read ({cause.strerror or cause})") from cause
    except SafetensorError as cause:
        check_content(path, WeightsError)
        raise WeightsError(f"{path}: damaged or truncated safetensors file ({cause})") from cause


def _unlisted(folder: Path) -> set[Path]:
    """Return the safetensors files of a folder without an index.

    Mistral publishes its models in two forms, the other of which is ``consolidated.safetensors``, with other names.
    """
    files = {*folder.glob("*.safetensors")}
    return {file for file in files if not file.name.startswith("consolidated")} or files


def _read_index(path: Path) -> dict[str, str]:
    """Read the file name of every tensor from an index file."""
    listed = read_json_object(path, WeightsError).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise WeightsError(f"{path}: weight_map must be an object that names a file for every tensor")
    for key, name in listed.items():
        # Only plain names are allowed: a path could lead out of the folder.
        if not isinstance(name, str) or name != Path(name).name or not name.endswith(".safetensors") or "\\" in name:
            raise WeightsError(f"{path}: {key}: {name!r} is not the name of a safetensors file in the same folder")
    return listed
