"""Loading of the weights of a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from tqdm import tqdm

from constrain.arguments import check_number, check_type
from constrain.errors import ModelError
from constrain.model.builder import build_modules
from constrain.model.config import ExLlamaV2Config
from constrain.model.devices import default_dtype, listed_devices
from constrain.model.kv_cache import ExLlamaV2Cache, ExLlamaV2CacheBase
from constrain.model.memory import dequantized_forms, fill_in_order, place, place_with_cache
from constrain.model.modules import Attention, Module, find_linear
from constrain.model.rope import RotaryTable
from constrain.model.shard_memory import plan_shards
from constrain.model.sharded_builder import build_sharded_modules
from constrain.model.sharding import ShardingPlan
from constrain.model.tensor_files import TensorFiles
from constrain.model.tensor_reader import LoadOrder, TensorSource

_log = logging.getLogger(__name__)

Callback = Callable[[int, int], Any]
CallbackGenerator = Callable[[int, int], Iterable[Any]]


class LoadableModel:
    """The modules of a model, and methods to load their weights. The constructor reads no weights.

    Attributes:
        config: the config of the model.
        modules: embedding, then attention and MLP of every layer, the last norm, and the head.
        modules_dict: modules, and the linear layers inside them, by name.
        loaded: whether the weights are loaded.
        compute_dtype: dtype of weights and states; chosen by the load methods unless the config sets it.
        cache_map: device of each layer, for KV caches.
        tp_context: the parts of a model loaded with :meth:`load_tp`; otherwise ``None``.
    """

    def __init__(self, config: ExLlamaV2Config, lazy_load: bool = False) -> None:
        """Build the modules of a prepared config. ``lazy_load`` is accepted for compatibility; it is always lazy.

        Raises:
            ModelError: the config has not been prepared, or an attribute is invalid.
        """
        if not hasattr(config, "layout"):
            raise ModelError(
                "the config is not prepared; give ExLlamaV2Config the folder of a model, or call prepare()"
            )
        config.check()
        self.config = config
        self._adopt(build_modules(config))
        self.loaded = False
        self.tp_context: ShardingPlan | None = None
        self.compute_dtype = config.compute_dtype or torch.float32
        self.cache_map: dict[int, str] = {}
        self._spread, self._places = False, [0] * len(self.modules)
        self._rotary: tuple[RotaryTable, RotaryTable] | None = None

    def _adopt(self, modules: list[Module]) -> None:
        self.modules = modules
        self.modules_dict: dict[str, Module] = {
            **{module.key: module for module in modules},
            **find_linear(modules),
        }

    def load(
        self,
        gpu_split: list[float] | None = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Callback | None = None,
        callback_gen: CallbackGenerator | None = None,
        progress: bool = False,
        devices: Sequence[str | torch.device] | None = None,
    ) -> None:
        """Load onto the GPUs, or onto the CPU where there is none.

        Args:
            gpu_split: gigabytes of weights for each GPU; by default all on the first.
            lazy: only assign devices.
            stats: accepted for compatibility.
            callback: called as ``callback(index, total)`` before each module and once after the last.
            callback_gen: see :meth:`load_gen`.
            progress: show a bar on the console.
            devices: the devices that ``gpu_split`` has a number for each of, which may repeat; by default the GPUs.

        Raises:
            ArgumentError: the split is not a list of numbers.
            ModelError: the split is too small, or the devices are of several types.
            WeightsError: a file changed or vanished since the config was prepared.
        """
        generator = self.load_gen(gpu_split, lazy, stats, callback, callback_gen, devices=devices)
        _exhaust(generator, len(self.modules), progress)

    def load_gen(
        self,
        gpu_split: list[float] | None = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Callback | None = None,
        callback_gen: CallbackGenerator | None = None,
        devices: Sequence[str | torch.device] | None = None,
    ) -> Generator[Any, None, None]:
        """:meth:`load` as a generator, which yields what ``callback_gen(index, total)`` yields."""
        _check_split(gpu_split)
        self.choose_dtype()
        if devices is None:
            self._place(place(self, gpu_split))
        else:
            chosen = listed_devices(devices)
            places = fill_in_order(self, gpu_split or [], len(chosen))
            self._place([chosen[i] for i in places], places)
        if not lazy:
            yield from self._load_modules(callback, callback_gen)

    def load_autosplit(
        self,
        cache: ExLlamaV2CacheBase,
        reserve_vram: int | list[int] | None = None,
        last_id_only: bool = False,
        callback: Callback | None = None,
        callback_gen: CallbackGenerator | None = None,
        progress: bool = False,
    ) -> None:
        """Load onto the GPUs by their free memory, each layer with its share of ``cache``, and allocate the cache.

        Args:
            cache: a lazy KV cache.
            reserve_vram: bytes to leave free on every GPU, or on each.
            last_id_only: accepted for compatibility.
            callback, callback_gen, progress: as for :meth:`load`.

        Raises:
            ArgumentError: ``cache`` is no cache.
            ModelError: model and cache do not fit.
        """
        generator = self.load_autosplit_gen(cache, reserve_vram, last_id_only, callback, callback_gen)
        _exhaust(generator, len(self.modules), progress)

    def load_autosplit_gen(
        self,
        cache: ExLlamaV2CacheBase,
        reserve_vram: int | list[int] | None = None,
        last_id_only: bool = False,
        callback: Callback | None = None,
        callback_gen: CallbackGenerator | None = None,
    ) -> Generator[Any, None, None]:
        """:meth:`load_autosplit` as a generator, which yields what ``callback_gen(index, total)`` yields."""
        check_type("cache", cache, ExLlamaV2CacheBase, "a lazy KV cache")
        self.config.max_input_len = min(self.config.max_input_len, self.config.max_seq_len)
        self.choose_dtype()
        self._place(place_with_cache(self, cache, reserve_vram))
        yield from self._load_modules(callback, callback_gen)
        cache.update_cache_tensors()

    def load_tp(
        self,
        gpu_split: list[float] | None = None,
        callback: Callback | None = None,
        callback_gen: CallbackGenerator | None = None,
        progress: bool = False,
        expect_cache_tokens: int = 0,
        expect_cache_base: type[ExLlamaV2CacheBase] | None = None,
        devices: Sequence[str | torch.device] | None = None,
    ) -> None:
        """Load with every layer split over the GPUs (tensor parallelism).

        The KV cache of the model is an :class:`~constrain.model.ExLlamaV2Cache_TP`.

        Args:
            gpu_split: gigabytes of weights and cache for each GPU, to which its share is proportional. By default the
                shares are equal, or proportional to free memory if equal ones do not fit.
            callback, callback_gen, progress: as for :meth:`load`.
            expect_cache_tokens: tokens of the cache, for which memory is left.
            expect_cache_base: class of the cache.
            devices: device of each shard; devices may repeat. By default all GPUs, or the CPU.

        Raises:
            ArgumentError: an argument is of the wrong type.
            ModelError: the shares do not fit, or the model is loaded, or the devices are of several types.
            WeightsError: a file changed or vanished, or holds weights in a layout that cannot be split.
        """
        generator = self.load_tp_gen(
            gpu_split, callback, callback_gen, expect_cache_tokens, expect_cache_base, devices=devices
        )
        _exhaust(generator, len(self.modules), progress)

    def load_tp_gen(
        self,
        gpu_split: list[float] | None = None,
        callback: Callback | None = None,
        callback_gen: CallbackGenerator | None = None,
        expect_cache_tokens: int = 0,
        expect_cache_base: type[ExLlamaV2CacheBase] | None = None,
        devices: Sequence[str | torch.device] | None = None,
    ) -> Generator[Any, None, None]:
        """:meth:`load_tp` as a generator, which yields what ``callback_gen(index, total)`` yields."""
        if self.loaded:
            raise ModelError("tensor-parallel loading is for a model that has not been loaded; make another one")
        _check_split(gpu_split)
        self.choose_dtype()
        kind = expect_cache_base or ExLlamaV2Cache
        cache = kind(self, max_seq_len=max(1, expect_cache_tokens), lazy=True)
        plan = plan_shards(self, gpu_split, cache, devices)
        self._adopt(build_sharded_modules(self.config, plan))
        self.tp_context = plan
        self._place([plan.main] * len(self.modules))
        yield from self._load_modules(callback, callback_gen)

    def unload(self) -> None:
        """Release the memory of all weights. The model cannot be used afterwards."""
        self.modules, self.modules_dict = [], {}
        self.loaded, self._rotary = False, None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def get_modules(self) -> list[Module]:
        """``modules``."""
        return self.modules

    def get_cache_devices(self) -> list[str]:
        """Distinct devices of layers."""
        shards = map(str, self.tp_context.devices) if self.tp_context else self.cache_map.values()
        return list(dict.fromkeys(shards))

    def is_quant(self) -> bool:
        """Whether the files hold quantised weights."""
        return self.config.files is not None and bool(self.config.files.quantized)

    def _files(self) -> TensorFiles:
        if self.config.files is None:
            raise ModelError("the config was prepared with no_tensors=True; call prepare() to find the weights")
        return self.config.files

    def choose_dtype(self) -> None:
        """Choose ``compute_dtype``; called by the load methods.

        That of the config, if it is set, but for float16 where states exceed its range.

        Raises:
            ModelError: the model has been unloaded.
        """
        if not self.modules:
            raise ModelError("the model has been unloaded, and cannot be loaded again; make another one")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        stored = self._files().dtype(f"{self.config.layout.embedding}.weight")
        chosen = self.config.compute_dtype or default_dtype(device, stored)
        if chosen is torch.float16 and self.config.arch.lm.wide_residual:
            chosen = torch.bfloat16
        self.compute_dtype = chosen

    def _place(self, devices: Sequence[torch.device], places: Sequence[int] | None = None) -> None:
        """Assign a device to every module; ``places`` tell apart those that are on one device in several steps."""
        distinct = list(dict.fromkeys(devices))
        self._places = list(places or (distinct.index(device) for device in devices))
        for module, device in zip(self.modules, devices, strict=True):
            module.device = device
        self.cache_map = {module.index: str(module.device) for module in self.modules if isinstance(module, Attention)}
        self._spread = len({*devices}) > 1

    def _load_modules(self, callback: Callback | None, callback_gen: CallbackGenerator | None) -> Iterator[Any]:
        self._say_what_is_dequantized()
        devices = [module.device for module in self.modules]
        total = len(devices)
        with self._source(devices) as source:
            for index, (module, device) in enumerate(zip(self.modules, devices, strict=True)):
                yield from _notify(index, total, callback, callback_gen)
                module.load(source, device, self.compute_dtype)
        self._rotary = rotary_tables(self.config, self.compute_dtype)
        self.loaded = True
        yield from _notify(total, total, callback, callback_gen)

    def _say_what_is_dequantized(self) -> None:
        forms = dequantized_forms(self)
        if forms:
            listed = ", ".join(f"{count} in {form}" for form, count in sorted(forms.items()))
            _log.warning("quantised weights are dequantised, as there are no products with them: %s", listed)

    def _source(self, devices: Sequence[torch.device]) -> AbstractContextManager[TensorSource]:
        """The files; for GPUs a reader that prefetches tensors in the order in which the modules copy them."""
        if all(device.type == "cpu" for device in devices):
            return self._files().kept_open()
        order = LoadOrder()
        for module in self.modules:
            module.load(order, torch.device("meta"), self.compute_dtype)
        return _prefetching(self._files(), order.tensors)


@contextmanager
def _prefetching(files: TensorFiles, tensors: Sequence[tuple[str, tuple[int, ...]]]) -> Iterator[TensorSource]:
    """Prefetch tensors; quantised weights are read when they are due, from files that are kept open for them."""
    with files.kept_open(), files.reader(tensors) as reader:
        yield reader


def rotary_tables(config: ExLlamaV2Config, dtype: torch.dtype) -> tuple[RotaryTable, RotaryTable]:
    """Compute the rotary tables of full and of sliding layers; one object if they are equal."""
    # Scaling by the user is for longer contexts; the distances in sliding layers stay as in training.
    context = config.max_seq_len
    full = RotaryTable(config.rope, config.scale_pos_emb or 1.0, config.scale_alpha_value or 1.0, dtype, context)
    same = config.rope_local == config.rope
    return full, full if same else RotaryTable(config.rope_local, 1.0, 1.0, dtype, context)


def _check_split(gpu_split: list[float] | None) -> None:
    if gpu_split is not None:
        check_type("gpu_split", gpu_split, (list, tuple), "a list of gigabytes")
        for number, gigabytes in enumerate(gpu_split):
            check_number(f"gpu_split[{number}]", gigabytes, 0)


def _notify(index: int, total: int, callback: Callback | None, generator: CallbackGenerator | None) -> Iterator[Any]:
    if callback is not None:
        callback(index, total)
    if generator is not None:
        yield from generator(index, total)


def _exhaust(generator: Generator[Any, None, None], modules: int, progress: bool) -> None:
    for _ in tqdm(generator, desc="Loading", total=modules + 1, disable=not progress):
        pass
