"""KV caches: the storage of keys and values. Pages of it are allocated in ``runtime/page_allocator.py``."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch

from constrain.arguments import check_count, check_type, refused
from constrain.errors import CacheError, ModelError
from constrain.kernels import KVQuantization, Parts, Unquantized
from constrain.model.config import ExLlamaV2Config
from constrain.model.devices import listed_devices

Tensors = list["torch.Tensor | None"]
Slots = slice | torch.Tensor
"""Positions of a row: a range, or int64 ``[n]`` on the device of the layer."""


class CachedModel(Protocol):
    """The interface that a KV cache needs of a model."""

    @property
    def config(self) -> ExLlamaV2Config: ...
    @property
    def compute_dtype(self) -> torch.dtype: ...
    @property
    def cache_map(self) -> Mapping[int, str]: ...


class ExLlamaV2CacheBase(ABC):
    """KV cache of ``batch_size`` sequences of up to ``max_seq_len`` tokens, for every layer of a model.

    Attributes:
        current_seq_len: number of valid positions. A forward pass appends positions and increments it; assign a smaller
            number to rewind.
        key_states, value_states: by layer, ``[batch_size, max_seq_len, num_key_value_heads, head_dim]``, where the KV
            quantisation may change the last dimension; ``None`` while a lazy cache has no memory.
        has_scales: whether there are ``key_scales`` and ``value_scales`` too, which differ in the last dimension.
        batch_size, max_seq_len, num_key_value_heads, num_hidden_layers, head_dim, dtype, fixed_device: its shape.
    """

    has_scales = False

    def __init__(
        self,
        model: CachedModel,
        batch_size: int = 1,
        max_seq_len: int = -1,
        copy_from: ExLlamaV2CacheBase | None = None,
        lazy: bool = False,
        num_key_value_heads: int | None = None,
        fixed_device: int | str | None = None,
    ) -> None:
        """Create an empty cache, or with ``copy_from`` a copy.

        Args:
            model: the model; loaded, unless ``lazy``.
            batch_size: number of rows.
            max_seq_len: number of positions of a row; -1: the ``max_seq_len`` of the model's config.
            copy_from: a cache of the same kind and shape, whose content is copied, ``current_seq_len`` included.
            lazy: allocate memory only in ``model.load_autosplit(cache)`` or :meth:`update_cache_tensors`.
            num_key_value_heads: overrides the model's.
            fixed_device: one device for all layers, instead of the device of each layer.

        Raises:
            CacheError: the shape is invalid or does not fit into memory, ``copy_from`` is lazy or of another kind or
                shape, or the model is not loaded.
        """
        if not hasattr(model, "config"):
            raise refused("model", model, "an ExLlamaV2", CacheError)
        config = model.config
        if max_seq_len == -1:
            max_seq_len = config.max_seq_len
        check_count("batch_size", batch_size, 1, error=CacheError)
        check_count("max_seq_len", max_seq_len, 1, error=CacheError)
        if num_key_value_heads is not None:
            check_count("num_key_value_heads", num_key_value_heads, 1, error=CacheError)
        check_type("copy_from", copy_from, (ExLlamaV2CacheBase, type(None)), "a KV cache", CacheError)
        self.model = model
        self.batch_size = batch_size
        self.num_key_value_heads = num_key_value_heads or config.num_key_value_heads
        self.num_hidden_layers = config.num_hidden_layers
        self.head_dim = config.head_dim
        self.max_seq_len = self._whole_blocks(max_seq_len)
        self.fixed_device = fixed_device
        self.current_seq_len = 0
        self._plain: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}
        self.key_states: Tensors = [None] * self.num_hidden_layers
        self.value_states: Tensors = [None] * self.num_hidden_layers
        # Alternating: the first tensor of the quantised keys, the first of the values, the second of the keys, ...
        self._stores = [self.key_states, self.value_states]
        if self.has_scales:
            self.key_scales: Tensors = [None] * self.num_hidden_layers
            self.value_scales: Tensors = [None] * self.num_hidden_layers
            self._stores += [self.key_scales, self.value_scales]
        if lazy and copy_from is not None:
            raise CacheError("a lazy cache has no tensors to copy into; leave out lazy or copy_from")
        if lazy:
            return
        self.update_cache_tensors()
        if copy_from is not None:
            self._copy_content(copy_from)

    @property
    @abstractmethod
    def key_quantization(self) -> KVQuantization:
        """Quantisation of keys."""

    @property
    @abstractmethod
    def value_quantization(self) -> KVQuantization:
        """Quantisation of values."""

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of ``key_states`` and ``value_states``."""
        return self.key_quantization.layout(self.head_dim)[0][1]

    @property
    def num_entries(self) -> int:
        """Number of entries: one for each layer, and where layers are split over devices, for each part of a layer."""
        return self.num_hidden_layers

    def update_cache_tensors(self) -> None:
        """Allocate memory on the devices of the layers of the loaded model, without the former content.

        Raises:
            CacheError: there is not enough memory.
        """
        devices = [self._device(layer) for layer in range(self.num_hidden_layers)]
        self._check_memory(devices)
        shape = (self.batch_size, self.max_seq_len, self.num_key_value_heads)
        try:
            for store, (width, dtype) in zip(self._stores, self._layout(), strict=True):
                for layer, device in enumerate(devices):
                    store[layer] = torch.zeros((*shape, width), dtype=dtype, device=device)
        except (RuntimeError, MemoryError) as cause:  # torch's out-of-memory errors are RuntimeErrors
            for store in self._stores:
                store[:] = [None] * self.num_hidden_layers
            raise self._too_large() from cause

    def all_tensors(self) -> list[torch.Tensor]:
        """All stored tensors: keys by layer, then values, then their scales, if any."""
        return [tensor for store in self._stores for tensor in store if tensor is not None]

    def extend(
        self, layer: int, k: torch.Tensor, v: torch.Tensor, past: int, start: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new keys and values of a layer, and return those that attention reads.

        Args:
            layer: number of the layer.
            k, v: ``[batch, width, num_key_value_heads, head_dim]``, for the first ``batch`` rows.
            past: position of the first new ones.
            start: first position to return.

        Returns:
            Keys and values of positions ``start`` to ``past + width - 1``, in the shape of the new ones. The new ones
            are read back too, so that rounding does not depend on how the tokens were split into passes.
        """
        end = past + k.shape[1]
        return self.extend_slots(layer, k, v, slice(past, end), slice(start, end))

    def extend_slots(
        self, layer: int, k: torch.Tensor, v: torch.Tensor, write: Slots, read: Slots
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """:meth:`extend` for arbitrary positions of a row.

        Args:
            layer: number of the layer.
            k, v: ``[batch, width, num_key_value_heads, head_dim]``, for the first ``batch`` rows.
            write: their ``width`` positions.
            read: positions to return, in this order.
        """
        keys, values = self.parts(layer)
        read_keys = self._extend(self.key_quantization, keys, k, write, read)
        return read_keys, self._extend(self.value_quantization, values, v, write, read)

    def parts(self, layer: int) -> tuple[Parts, Parts]:
        """Stored tensors of the keys and of the values of a layer.

        Raises:
            CacheError: the cache is lazy, and has no memory yet.
        """
        tensors = [tensor for store in self._stores if (tensor := store[layer]) is not None]
        if len(tensors) < len(self._stores):
            raise CacheError("the cache is lazy and has no tensors; load the model with load_autosplit(cache)")
        return tuple(tensors[::2]), tuple(tensors[1::2])

    @torch.inference_mode()
    def get_kv_state(
        self,
        layer_idx: int,
        batch_size: int,
        offset: int,
        width: int,
        page_size: int = 0,
        cache_seqlens: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of a layer, for programs that compute attention themselves.

        Args:
            layer_idx: number of the layer.
            batch_size: number of rows, the first ones.
            offset, width: first position that is needed, and number of positions.
            page_size: 0, or the size of the pages into which the rows of the cache, one after the other, are divided.
                Then all positions of the sequences below are needed.
            cache_seqlens: integers ``[batch_size]``, the length of each sequence on pages.
            block_table: integers ``[batch_size, n]``, its pages, in order.

        Returns:
            Tensors ``[batch_size of the cache, max_seq_len, num_key_value_heads, head_dim]`` in the compute dtype of
            the model, with any values at positions that are not needed. Those of a quantised cache are a copy, which
            the next call for the same device overwrites; :meth:`store_kv_state` stores what is written there.

        Raises:
            CacheError: the cache is lazy, and has no memory yet, or lacks these positions.
        """
        lengths = None if cache_seqlens is None else cache_seqlens.tolist()
        ends = [(offset, width)] * batch_size if lengths is None else [(0, length) for length in lengths]
        slots = self._slots(ends, page_size, block_table)
        states = self._states(layer_idx)
        for quantization, stored, plain in self._views(layer_idx, states):
            plain[slots] = quantization.dequantize(tuple(part[slots] for part in stored), plain.dtype)
        return states

    @torch.inference_mode()
    def store_kv_state(
        self,
        layer_idx: int,
        batch_size: int,
        offset: int,
        width: int,
        page_size: int = 0,
        cache_seqlens: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
    ) -> None:
        """Store new keys and values, which were written to the tensors of :meth:`get_kv_state`.

        Args:
            layer_idx, batch_size, page_size, block_table: as there.
            offset, width: first position that is new, and number of positions; on pages they follow ``cache_seqlens``.
            cache_seqlens: integers ``[batch_size]``, the length of each sequence before.

        Raises:
            CacheError: the cache is lazy, and has no memory yet, or lacks these positions.
        """
        starts = [offset] * batch_size if cache_seqlens is None else cache_seqlens.tolist()
        slots = self._slots([(start, width) for start in starts], page_size, block_table)
        for quantization, stored, plain in self._views(layer_idx, self._states(layer_idx)):
            for tensor, part in zip(stored, quantization.quantize(plain[slots]), strict=True):
                tensor[slots] = part

    def reset(self) -> None:
        """Remove the content."""
        self.current_seq_len = 0

    def clone(self) -> ExLlamaV2CacheBase:
        """Return an independent copy, ``current_seq_len`` included."""
        return type(self)(
            self.model,
            self.batch_size,
            self.max_seq_len,
            copy_from=self,
            num_key_value_heads=self.num_key_value_heads,
            fixed_device=self.fixed_device,
        )

    # Here and below: tensors created in inference mode can be changed only in inference mode.
    @torch.inference_mode()
    def roll_left(self) -> None:
        """Remove the first position."""
        for tensor in self.all_tensors():
            tensor[:, :-1] = tensor[:, 1:].clone()
        self.current_seq_len = max(0, self.current_seq_len - 1)

    @torch.inference_mode()
    def copy_states(
        self,
        target: ExLlamaV2CacheBase,
        from_column: int,
        from_columns: int,
        to_column: int,
        to_columns: int,
        from_row: int,
        from_rows: int,
        to_row: int,
        to_rows: int,
    ) -> None:
        """Copy positions of one row, in all layers, to one or more rows of ``target``, which may be this cache.

        Raises:
            CacheError: more than one source row, different numbers of positions, a range beyond either cache, or
                ``target`` is no cache of the same kind, or one of the two has no memory yet.
        """
        self._check_kind("target", target, 2)
        for name, value in (
            ("from_column", from_column),
            ("from_columns", from_columns),
            ("to_column", to_column),
            ("from_row", from_row),
            ("to_row", to_row),
            ("to_rows", to_rows),
        ):
            check_count(name, value, error=CacheError)
        if from_rows != 1 or from_columns != to_columns:
            raise CacheError("copy_states copies one row, and as many columns as it is given")
        for cache, row, rows, column in ((self, from_row, 1, from_column), (target, to_row, to_rows, to_column)):
            if row + rows > cache.batch_size or column + from_columns > cache.max_seq_len:
                raise CacheError(
                    f"rows from {row} on and columns from {column} on reach beyond a cache of {cache.batch_size} rows "
                    f"of {cache.max_seq_len} tokens"
                )
        for source, copy in zip(self.all_tensors(), target.all_tensors(), strict=True):
            states = source[from_row : from_row + 1, from_column : from_column + from_columns]
            # The ranges may overlap.
            states = states.clone() if target is self else states
            copy[to_row : to_row + to_rows, to_column : to_column + to_columns].copy_(states)

    def footprint(self) -> list[int]:
        """Bytes by device: one entry for each GPU up to the last one in use, or one for the CPU."""
        sizes: dict[int, int] = {}
        for tensor in self.all_tensors():
            index = tensor.device.index or 0
            sizes[index] = sizes.get(index, 0) + tensor.numel() * tensor.element_size()
        return [sizes.get(index, 0) for index in range(max(sizes, default=-1) + 1)]

    def layer_bytes(self) -> int:
        """Bytes of the keys and values of one layer."""
        elements = self.batch_size * self.max_seq_len * self.num_key_value_heads
        return elements * sum(width * dtype.itemsize for width, dtype in self._layout())

    def _slots(
        self, spans: Sequence[tuple[int, int]], page_size: int, block_table: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the places in the concatenated rows of positions, given for each row by their start and number."""
        if bool(page_size) != (block_table is not None):
            raise CacheError("pages are given by page_size, cache_seqlens and block_table together")
        if block_table is None:
            if len(spans) > self.batch_size or any(at < 0 or at + n > self.max_seq_len for at, n in spans):
                size = f"{self.batch_size} rows of {self.max_seq_len} tokens"
                raise CacheError(f"a cache of {size} lacks these positions")
            return torch.cat([torch.arange(n) + row * self.max_seq_len + at for row, (at, n) in enumerate(spans)])
        slots = []
        for table, (at, n) in zip(block_table.cpu().long(), spans, strict=True):
            positions = torch.arange(at, at + n)
            slots.append(table[positions // page_size] * page_size + positions % page_size)
        return torch.cat(slots)

    def _states(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of a layer, or for all quantised ones on a device the tensors of their copies."""
        (keys, *_), (values, *_) = self.parts(layer)
        dtype = self.model.compute_dtype
        if keys.dtype == dtype:
            return keys, values
        if keys.device not in self._plain:
            shape = (*keys.shape[:3], self.head_dim)
            with torch.inference_mode(False):  # the caller writes to it
                plain = torch.zeros(2, *shape, dtype=dtype, device=keys.device)
            self._plain[keys.device] = plain[0], plain[1]
        return self._plain[keys.device]

    def _views(
        self, layer: int, states: tuple[torch.Tensor, torch.Tensor]
    ) -> Iterator[tuple[KVQuantization, Parts, torch.Tensor]]:
        """Yield keys and values with their rows concatenated, as they are stored and as copies, if there are copies."""
        formats = self.key_quantization, self.value_quantization
        for quantization, stored, plain in zip(formats, self.parts(layer), states, strict=True):
            if plain is not stored[0]:
                yield quantization, tuple(part.flatten(0, 1) for part in stored), plain.flatten(0, 1)

    def _whole_blocks(self, positions: int) -> int:
        """Round a number of positions up to whole blocks of the storage."""
        return positions

    def _layout(self) -> list[tuple[int, torch.dtype]]:
        """Size of the last dimension and dtype of the tensors in each of ``_stores``."""
        keys, values = self.key_quantization.layout(self.head_dim), self.value_quantization.layout(self.head_dim)
        return [part for pair in zip(keys, values, strict=True) for part in pair]

    def _extend(
        self, quantization: KVQuantization, stored: Parts, new: torch.Tensor, write: Slots, read: Slots
    ) -> torch.Tensor:
        batch = new.shape[0]
        parts = []
        for tensor, part in zip(stored, quantization.quantize(new), strict=True):
            rows = tensor if batch == self.batch_size else tensor[:batch]
            rows[:, write] = part
            parts.append(rows[:, read])
        return quantization.dequantize(tuple(parts), new.dtype)

    @torch.inference_mode()
    def _copy_content(self, other: ExLlamaV2CacheBase) -> None:
        self._check_kind("copy_from", other, 0)
        for target, source in zip(self.all_tensors(), other.all_tensors(), strict=True):
            target.copy_(source)
        self.current_seq_len = other.current_seq_len

    def _check_kind(self, name: str, other: object, dim: int) -> None:
        """Raise unless another cache has tensors like those of this one, whose shapes may differ before ``dim``."""
        check_type(name, other, ExLlamaV2CacheBase, "a KV cache", CacheError)
        assert isinstance(other, ExLlamaV2CacheBase)
        mine, theirs = ([(each.shape[dim:], each.dtype) for each in cache.all_tensors()] for cache in (self, other))
        if not mine or mine != theirs:
            same = "same kind" if dim else "same shape and kind"
            raise CacheError(f"{name} must be a cache of the {same}, and both must have their tensors")

    def _device(self, layer: int) -> torch.device:
        if self.fixed_device is not None:
            try:
                return listed_devices([torch.device(self.fixed_device)])[0]
            except (RuntimeError, TypeError, ModelError) as error:
                raise CacheError(f"fixed_device={self.fixed_device!r} is no device: {error}") from error
        if getattr(self.model, "tp_context", None) is not None:
            raise CacheError("the layers of the model are split over devices: use ExLlamaV2Cache_TP(model, base=...)")
        if layer not in self.model.cache_map:
            raise CacheError(
                "the model is not loaded; load it first, or make a lazy cache and call load_autosplit(cache)"
            )
        return torch.device(self.model.cache_map[layer])

    def _check_memory(self, devices: list[torch.device]) -> None:
        # Linux overcommits: the allocation would succeed, and the process would be killed on first use.
        on_cpu = sum(self.layer_bytes() for device in devices if device.type == "cpu")
        if on_cpu > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise self._too_large()

    def _too_large(self) -> CacheError:
        size = self.layer_bytes() * self.num_hidden_layers / 1024**3
        return CacheError(
            f"a cache of {self.batch_size} rows of {self.max_seq_len} tokens needs {size:.1f} GiB, more than there is; "
            "pass a smaller max_seq_len or batch_size"
        )


class ExLlamaV2Cache(ExLlamaV2CacheBase):
    """KV cache in the compute dtype of the model."""

    @property
    def key_quantization(self) -> KVQuantization:
        return Unquantized(self.model.compute_dtype)

    value_quantization = key_quantization
