"""``ExLlamaV2``: loading a model, and running it over tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from constrain.arguments import refused
from constrain.errors import GenerationError, ModelError
from constrain.model import decode
from constrain.model.builder import build_modules
from constrain.model.cache import ExLlamaV2CacheBase
from constrain.model.config import ExLlamaV2Config
from constrain.model.decode import DecodeStep, LayerSight
from constrain.model.devices import default_dtype
from constrain.model.embeddings import IndexedEmbeddings
from constrain.model.lora import ExLlamaV2Lora
from constrain.model.memory import place, place_with_cache
from constrain.model.modules import Attention, Head, Module, find_linear
from constrain.model.paged import PagedRow, make_paged_view, places
from constrain.model.rope import RotaryTable
from constrain.model.step import Sight, Step, chunk_widths, make_view
from constrain.model.tensor_files import TensorFiles
from constrain.model.tensor_reader import LoadOrder, TensorSource

Callback = Callable[[int, int], Any]
CallbackGenerator = Callable[[int, int], Iterable[Any]]


class ExLlamaV2:
    """A model. Building it reads no weights; one of the load methods does.

    Attributes:
        config: what it was built from.
        modules: embedding, then attention and MLP of every layer, the last norm, and the head.
        modules_dict: modules, and the linear layers inside them, by name.
        loaded: whether it can compute.
        compute_dtype: dtype of weights and states; float32 until a load method knows better.
        cache_map: device of each layer, where caches take their memory.
        tp_context: always ``None``; tensor-parallel loading is not offered.
        head_layer_idx, last_kv_layer_idx: positions in ``modules`` of the head and of the last attention.
    """

    def __init__(self, config: ExLlamaV2Config, lazy_load: bool = False) -> None:
        """Build the modules of a prepared config. ``lazy_load`` is accepted for compatibility: loading always waits.

        Raises:
            ModelError: the config has not been prepared, or something in it was set to what cannot be.
        """
        if not hasattr(config, "layout"):
            raise ModelError(
                "the config is not prepared; give ExLlamaV2Config the folder of a model, or call prepare()"
            )
        config.check()
        self.config = config
        self.modules: list[Module] = build_modules(config)
        self.modules_dict: dict[str, Module] = {
            **{module.key: module for module in self.modules},
            **find_linear(self.modules),
        }
        self.loaded = False
        self.tp_context = None
        self.compute_dtype = config.compute_dtype or torch.float32
        self.cache_map: dict[int, str] = {}
        self.head_layer_idx = len(self.modules) - 1
        self.last_kv_layer_idx = len(self.modules) - 4
        self._spread = False
        self._rotary: tuple[RotaryTable, RotaryTable] | None = None

    # Loading

    def load(
        self,
        gpu_split: list[float] | None = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Callback | None = None,
        callback_gen: CallbackGenerator | None = None,
        progress: bool = False,
    ) -> None:
        """Load onto the GPUs, or onto the CPU where there is none.

        Args:
            gpu_split: gigabytes of weights for each GPU; by default all on the first.
            lazy: only decide on devices.
            stats: accepted for compatibility.
            callback: called as ``callback(index, total)`` before each module and once after the last.
            callback_gen: see :meth:`load_gen`.
            progress: show a bar on the console.

        Raises:
            ModelError: the split is too small.
            WeightsError: a file changed or vanished since the config was prepared.
        """
        generator = self.load_gen(gpu_split, lazy, stats, callback, callback_gen)
        _exhaust(generator, len(self.modules), progress)

    def load_gen(
        self,
        gpu_split: list[float] | None = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Callback | None = None,
        callback_gen: CallbackGenerator | None = None,
    ) -> Generator[Any, None, None]:
        """:meth:`load` as a generator, which yields what ``callback_gen(index, total)`` yields."""
        self.choose_dtype()
        self._place(place(self, gpu_split))
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
        """Load onto the GPUs by their free memory, each layer with its share of ``cache``, and give the cache memory.

        Args:
            cache: a lazy cache.
            reserve_vram: bytes to leave free on every GPU, or on each.
            last_id_only: accepted for compatibility.
            callback, callback_gen, progress: as for :meth:`load`.

        Raises:
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
        self.config.max_input_len = min(self.config.max_input_len, self.config.max_seq_len)
        self.choose_dtype()
        self._place(place_with_cache(self, cache, reserve_vram))
        yield from self._load_modules(callback, callback_gen)
        cache.update_cache_tensors()

    def load_tp(self, *args: Any, **kwargs: Any) -> None:
        """Not offered.

        Raises:
            ModelError: always.
        """
        raise ModelError("tensor-parallel loading is not offered; use load or load_autosplit, which split by layers")

    load_tp_gen = load_tp

    def unload(self) -> None:
        """Give the memory of all weights back. The model cannot be used afterwards."""
        self.modules, self.modules_dict = [], {}
        self.loaded, self._rotary = False, None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def get_modules(self) -> list[Module]:
        """``modules``."""
        return self.modules

    def get_cache_devices(self) -> list[str]:
        """Devices that hold layers, each once."""
        return list(dict.fromkeys(self.cache_map.values()))

    def is_quant(self) -> bool:
        """Whether the files hold quantised weights, which are turned into plain ones when they are loaded."""
        return self.config.files is not None and bool(self.config.files.quantized)

    def _files(self) -> TensorFiles:
        if self.config.files is None:
            raise ModelError("the config was prepared with no_tensors=True; call prepare() to find the weights")
        return self.config.files

    def choose_dtype(self) -> None:
        """Decide on ``compute_dtype``, as the load methods do first."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        stored = self._files().dtype(f"{self.config.layout.embedding}.weight")
        self.compute_dtype = self.config.compute_dtype or default_dtype(device, stored)

    def _place(self, devices: Sequence[torch.device]) -> None:
        for module, device in zip(self.modules, devices, strict=True):
            module.device = device
        self.cache_map = {module.index: str(module.device) for module in self.modules if isinstance(module, Attention)}
        self._spread = len({*devices}) > 1

    def _load_modules(self, callback: Callback | None, callback_gen: CallbackGenerator | None) -> Iterator[Any]:
        devices = [module.device for module in self.modules]
        total = len(devices)
        with self._source(devices) as source:
            for index, (module, device) in enumerate(zip(self.modules, devices, strict=True)):
                yield from _notify(index, total, callback, callback_gen)
                module.load(source, device, self.compute_dtype)
        config = self.config
        # The dials of the user are for the long context; windows of sliding layers never outgrow their training.
        full = RotaryTable(
            config.rope, config.scale_pos_emb or 1.0, config.scale_alpha_value or 1.0, self.compute_dtype
        )
        same = config.rope_local == config.rope
        self._rotary = full, full if same else RotaryTable(config.rope_local, 1.0, 1.0, self.compute_dtype)
        self.loaded = True
        yield from _notify(total, total, callback, callback_gen)

    def _source(self, devices: Sequence[torch.device]) -> AbstractContextManager[TensorSource]:
        """The files; for GPUs, what reads ahead in them, in the order in which the modules take their weights."""
        if all(device.type == "cpu" for device in devices):
            return nullcontext(self._files())
        order = LoadOrder()
        for module in self.modules:
            module.load(order, torch.device("meta"), self.compute_dtype)
        return self._files().reader(order.tensors)

    # Running

    def forward(
        self,
        input_ids: torch.Tensor,
        cache: ExLlamaV2CacheBase | None = None,
        input_mask: torch.Tensor | None = None,
        preprocess_only: bool = False,
        last_id_only: bool = False,
        loras: Sequence[ExLlamaV2Lora] | ExLlamaV2Lora | None = None,
        return_last_state: bool = False,
        position_offsets: torch.Tensor | None = None,
        abort_event: threading.Event | None = None,
        cpu_logits: bool = False,
        indexed_embeddings: Sequence[IndexedEmbeddings] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Logits of the token after each position.

        Args:
            input_ids: int64 ``[batch, width]`` on the CPU. Negative ids are padding; ids from ``EMBEDDING_INDEX`` on
                are rows of ``indexed_embeddings``.
            cache: holds ``current_seq_len`` earlier positions; the new ones are appended and counted.
            input_mask: float ``[batch, <= past + width]``, added to the scores of key positions, very negative at
                padding (see ``ExLlamaV2Tokenizer.padding_mask``); positions beyond its width are visible.
            preprocess_only: only fill the cache.
            last_id_only: logits of the last position only.
            loras: adapters to apply; several add up.
            return_last_state: return the input of the head too.
            position_offsets: int ``[batch]``, added to the positions; minus the padding of each row.
            abort_event: when set, the pass stops and returns ``None``.
            cpu_logits: collect the logits on the CPU.
            indexed_embeddings: rows that ids refer to.
            kwargs: ignored, for compatibility.

        Returns:
            Logits ``[batch, width or 1, vocabulary rounded up to 32]``, where the columns beyond the vocabulary are
            -65504; with ``return_last_state`` a tuple of these and the state ``[batch, width or 1, hidden]``; ``None``
            with ``preprocess_only``, when aborted, and for no tokens at all.

        Raises:
            ArgumentError: ``input_ids`` are no ids, or ``loras`` no adapters.
            GenerationError: the model is not loaded, the cache is too short, there are more tokens than one pass takes
                and no cache to pass them through in turns, or an id is outside the vocabulary.
        """
        self._check(input_ids, cache, last_id_only or preprocess_only)
        if input_ids.shape[1] == 0:
            return None
        chunks = list(self._chunks(input_ids, cache))
        logits: list[torch.Tensor] = []
        states: list[torch.Tensor] = []
        for number, chunk in enumerate(chunks):
            wanted = not preprocess_only and (not last_id_only or number == len(chunks) - 1)
            result = self.forward_chunk(
                chunk,
                cache,
                input_mask,
                preprocess_only=not wanted,
                last_id_only=last_id_only,
                loras=loras,
                return_last_state=return_last_state,
                position_offsets=position_offsets,
                abort_event=abort_event,
                indexed_embeddings=indexed_embeddings,
            )
            if abort_event is not None and abort_event.is_set():
                return None
            if wanted:
                logits.append(result["logits"].cpu() if cpu_logits else result["logits"])
                states += [result["last_state"]] if return_last_state else []
        if preprocess_only:
            return None
        joined = logits[0] if len(logits) == 1 else torch.cat(logits, dim=1)
        return (joined, torch.cat(states, dim=1)) if return_last_state else joined

    def forward_chunk(
        self,
        input_ids: torch.Tensor,
        cache: ExLlamaV2CacheBase | None = None,
        input_mask: torch.Tensor | None = None,
        preprocess_only: bool = False,
        last_id_only: bool = False,
        loras: Sequence[ExLlamaV2Lora] | ExLlamaV2Lora | None = None,
        return_last_state: bool = False,
        position_offsets: torch.Tensor | None = None,
        abort_event: threading.Event | None = None,
        extract_state_indices: Sequence[int] | None = None,
        indexed_embeddings: Sequence[IndexedEmbeddings] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """One pass of :meth:`forward`, however many tokens there are.

        Args:
            extract_state_indices: positions in ``modules`` whose input is wanted.

        Returns:
            ``"logits"`` unless ``preprocess_only``; ``"last_state"`` and ``"states"`` (by position) where asked for.
            Empty when aborted.
        """
        step = self._step(input_ids, cache, input_mask, position_offsets, loras, indexed_embeddings)
        last = self.last_kv_layer_idx if preprocess_only else self.head_layer_idx - 1
        wanted = set(extract_state_indices or ())
        result: dict[str, Any] = {"states": {}} if extract_state_indices is not None else {}
        x = input_ids
        with torch.inference_mode():
            for index, module in enumerate(self.modules[: last + 1]):
                if abort_event is not None and abort_event.is_set():
                    return {}
                if index in wanted:
                    result["states"][index] = x.clone()
                x = self._run(module, x, step)
        if cache is not None:
            cache.current_seq_len += input_ids.shape[1]
        if preprocess_only:
            return result
        if last_id_only:
            x = x[:, -1:]
        if return_last_state:
            result["last_state"] = x.clone()
        # Outside of inference mode, so that the logits are an ordinary tensor which a sampler may change.
        with torch.no_grad():
            result["logits"] = self._run(self.modules[-1], x, step)
        return result

    def forward_paged(
        self,
        rows: Sequence[PagedRow],
        cache: ExLlamaV2CacheBase,
        loras: Sequence[ExLlamaV2Lora] = (),
        indexed_embeddings: Sequence[IndexedEmbeddings] = (),
    ) -> torch.Tensor | None:
        """One pass over parts of several sequences, of any lengths, whose positions lie in pages of one cache.

        Args:
            rows: the parts.
            cache: of one row, which all the pages divide. Its ``current_seq_len`` is neither read nor changed.
            loras: adapters to apply.
            indexed_embeddings: rows that ids of any of the sequences refer to.

        Returns:
            Logits ``[n, vocabulary rounded up to 32]`` of the positions wanted, row by row; ``None`` for none.

        Raises:
            GenerationError: the model is not loaded, or an id is outside the vocabulary.
        """
        if not loras and not indexed_embeddings and decode.takes(self, cache, rows):
            return cache.decoder(rows[0].page_size).logits(rows)
        view = partial(make_paged_view, rows=rows, dtype=self.compute_dtype)
        end = max(row.past + row.width for row in rows)
        step = Step(*self._sights(view, end), cache, loras, indexed_embeddings)
        wanted = [i for row, at in zip(rows, places(rows), strict=True) for i in range(at.stop - row.logits, at.stop)]
        x = torch.cat([row.ids for row in rows]).unsqueeze(0)
        with torch.inference_mode():
            for module in self.modules[: self.head_layer_idx if wanted else self.last_kv_layer_idx + 1]:
                x = self._run(module, x, step)
        if not wanted:
            return None
        with torch.no_grad():  # as in forward_chunk
            logits: torch.Tensor = self._run(self.modules[-1], x[0, wanted], step)
        return logits

    @property
    def is_decodable(self) -> bool:
        """Whether :meth:`decode` can stand in for a pass: on one device, and nothing depends on lengths or hooks."""
        tables = self._rotary or ()
        fixed = not any(table.depends_on_length for table in tables)
        return self.loaded and not self._spread and fixed and all(module.decodes for module in self.modules)

    def layer_sights(self, length: int) -> tuple[LayerSight, LayerSight]:
        """What full and sliding layers need to decode sequences of up to ``length`` positions."""
        assert self._rotary is not None
        device, (table, local_table) = self.modules[0].device, self._rotary
        full = LayerSight(*table.whole(length, device), None)
        return full, LayerSight(*local_table.whole(length, device), self.config.sliding_window)

    def decode(self, ids: torch.Tensor, step: DecodeStep) -> torch.Tensor:
        """One token of many sequences, all on the device.

        Args:
            ids: int ``[rows, width]``, valid ids, the last of each row.
            step: where the sequences are.

        Returns:
            The input of the head, ``[rows, width, hidden]``.
        """
        x = ids
        for module in self.modules[: self.head_layer_idx]:
            x = module.decode(x, step)
        return x

    def decode_logits(self, states: torch.Tensor, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Logits ``[rows * width, vocabulary rounded up to 32]`` of what :meth:`decode` returns.

        With int64 ``tokens`` ``[n]``, the logits ``[rows * width, n]`` of these alone.
        """
        head = self.modules[self.head_layer_idx]
        assert isinstance(head, Head)
        return head.decode_logits(states, tokens)

    def update_loras(self) -> None:
        """Nothing to do: adapters attach themselves to the layers they change."""

    def _run(self, module: Module, x: torch.Tensor, step: Step) -> torch.Tensor:
        if not self._spread or x.dtype == torch.long:
            return module.forward(x, step if not self._spread else step.on(module.device))
        return module.forward(x.to(module.device), step.on(module.device))

    def _check(self, input_ids: torch.Tensor, cache: ExLlamaV2CacheBase | None, few_logits: bool) -> None:
        if not isinstance(input_ids, torch.Tensor) or input_ids.dim() != 2 or input_ids.is_floating_point():
            raise refused("input_ids", input_ids, "ids, int64 of shape (batch, width)")
        batch, width = input_ids.shape
        if cache is None:
            if width > self._pass_limit(batch):
                raise GenerationError(f"{width} tokens without a cache; one pass takes {self._pass_limit(batch)}")
        elif batch > cache.batch_size or cache.current_seq_len + width > cache.max_seq_len:
            raise GenerationError(
                f"{batch} rows of {cache.current_seq_len} + {width} tokens do not fit into a cache of "
                f"{cache.batch_size} rows of {cache.max_seq_len}"
            )
        limit = self.config.max_output_len
        if limit is not None and not few_logits and min(width, self._pass_limit(batch)) > limit:
            raise GenerationError(f"logits of {width} positions in one pass; config.max_output_len is {limit}")

    def _pass_limit(self, batch: int) -> int:
        return max(1, self.config.max_input_len * self.config.max_batch_size // batch)

    def _chunks(self, input_ids: torch.Tensor, cache: ExLlamaV2CacheBase | None) -> Iterator[torch.Tensor]:
        """Parts of the input, each small enough for one pass."""
        if cache is None:
            yield input_ids
            return
        limit, bound = self._pass_limit(input_ids.shape[0]), self.config.max_attention_size
        start = 0
        for width in chunk_widths(cache.current_seq_len, input_ids.shape[1], limit, bound):
            yield input_ids[:, start : start + width]
            start += width

    def _step(
        self,
        input_ids: torch.Tensor,
        cache: ExLlamaV2CacheBase | None,
        input_mask: torch.Tensor | None,
        position_offsets: torch.Tensor | None,
        loras: Sequence[ExLlamaV2Lora] | ExLlamaV2Lora | None,
        embeddings: Sequence[IndexedEmbeddings] | None,
    ) -> Step:
        past, width = cache.current_seq_len if cache is not None else 0, input_ids.shape[1]
        view = partial(
            make_view,
            past=past,
            width=width,
            padding=input_mask,
            offsets=position_offsets,
            dtype=self.compute_dtype,
        )
        return Step(*self._sights(view, past + width), cache, ExLlamaV2Lora.listed(loras), embeddings or ())

    def _sights(self, view: Callable[..., Sight], end: int) -> tuple[Sight, Sight]:
        """What full and sliding layers see of sequences that reach up to ``end``."""
        if self._rotary is None:
            raise GenerationError("the model is not loaded; call load() or load_autosplit(cache) first")
        table, local_table = self._rotary
        window = self.config.sliding_window
        view = partial(view, device=self.modules[0].device)
        full = view(table, None)
        # Within the window both kinds of layers see the same.
        if window is None or (local_table is table and end <= window):
            return full, full
        return full, view(local_table, window)


def _notify(index: int, total: int, callback: Callback | None, generator: CallbackGenerator | None) -> Iterator[Any]:
    if callback is not None:
        callback(index, total)
    if generator is not None:
        yield from generator(index, total)


def _exhaust(generator: Generator[Any, None, None], modules: int, progress: bool) -> None:
    for _ in tqdm(generator, desc="Loading", total=modules + 1, disable=not progress):
        pass
