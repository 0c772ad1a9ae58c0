"""``ExLlamaV2``: forward passes of a model."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from constrain.arguments import check_count, names_of, warn_of_misspelt
from constrain.errors import ArgumentError, GenerationError
from constrain.model.config import ExLlamaV2Config
from constrain.model.embeddings import IndexedEmbeddings, add_to_layer
from constrain.model.forward_context import (
    AttentionMetadata,
    ForwardContext,
    check_ids,
    check_rows,
    chunk_widths,
    contiguous_attention,
)
from constrain.model.kv_cache import ExLlamaV2CacheBase
from constrain.model.loading import LoadableModel
from constrain.model.lora import ExLlamaV2Lora, check_adapters
from constrain.model.modules import Attention, Head, Module
from constrain.model.prompt_images import NO_IMAGES, PromptImages, prompt_images
from constrain.model.rope import RotaryTable

#: What a cache has from the config of its model.
_CACHED = ("num_hidden_layers", "num_key_value_heads", "head_dim")


@dataclass(frozen=True)
class Segment:
    """Neighbouring modules, by their numbers, that run on one device."""

    device: torch.device
    modules: range


class ExLlamaV2(LoadableModel):
    """A model; its load methods are in the base class :class:`~constrain.model.loading.LoadableModel`.

    Attributes:
        head_layer_idx, last_kv_layer_idx: positions in ``modules`` of the head and of the last attention.
    """

    def __init__(self, config: ExLlamaV2Config, lazy_load: bool = False) -> None:
        """Build the modules, as :class:`~constrain.model.loading.LoadableModel` does."""
        super().__init__(config, lazy_load)
        self.head_layer_idx = len(self.modules) - 1
        per_layer = (self.head_layer_idx - 2) // config.num_hidden_layers
        self._layer_ends = {per_layer * (layer + 1): layer for layer in range(config.num_hidden_layers)}
        self.last_kv_layer_idx = max(i for i, each in enumerate(self.modules) if isinstance(each, Attention))

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
        attention: AttentionMetadata | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compute the logits of the token after each position.

        Args:
            input_ids: int64 ``[batch, width]`` on the CPU. Negative ids are padding; ids from ``EMBEDDING_INDEX`` on
                are rows of ``indexed_embeddings``.
            cache: KV cache with ``current_seq_len`` earlier positions; the new ones are appended.
            input_mask: float ``[batch, <= past + width]``, added to the scores of key positions, very negative at
                padding (see ``ExLlamaV2Tokenizer.padding_mask``); positions beyond its width are visible.
            preprocess_only: only fill the cache.
            last_id_only: logits of the last position only.
            loras: adapters to apply; several are summed.
            return_last_state: return the input of the head too.
            position_offsets: int ``[batch]``, added to the positions; minus the padding of each row.
            abort_event: when set, the pass stops and returns ``None``.
            cpu_logits: collect the logits on the CPU.
            indexed_embeddings: embeddings for ids outside the vocabulary.
            attention: attention metadata, for callers that manage the KV cache themselves: there is one pass for all
                tokens, ``cache``, ``input_mask`` and ``position_offsets`` are ignored, and adapters are not checked.
            kwargs: ignored, for compatibility; a name that is similar to one of the above causes a warning.

        Returns:
            Logits ``[batch, width or 1, vocabulary rounded up to 32]``, where the columns beyond the vocabulary are
            -65504; with ``return_last_state`` a tuple of these and the state ``[batch, width or 1, hidden]``; ``None``
            with ``preprocess_only``, when aborted, and for no tokens at all.

        Raises:
            ArgumentError: ``input_ids`` are not ids, ``loras`` not adapters, or ``cache``, ``input_mask`` or
                ``position_offsets`` are of the wrong type or for other rows, or ``attn_params`` of exllamav2 are given.
            GenerationError: the model is not loaded, the cache is too short or of another model, its length is not a
                number, there are too many tokens for one pass and no cache for several, an id is outside the
                vocabulary, or an adapter is not attached to this model.
        """
        _check_others(kwargs, names_of(ExLlamaV2.forward))
        check_ids(input_ids)
        if input_ids.numel() == 0:
            return None
        if attention is None:
            check_rows(input_ids.shape[0], cache, input_mask, position_offsets)
            self._check(input_ids, cache, last_id_only or preprocess_only)
        images = self._images(input_ids, cache, indexed_embeddings) if attention is None else NO_IMAGES
        chunks = [input_ids] if attention is not None else list(self._chunks(input_ids, cache, images))
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
                attention=attention,
                images=images,
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
        attention: AttentionMetadata | None = None,
        images: PromptImages | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Run one pass of :meth:`forward` over all tokens.

        Args:
            images: the images of the prompt that the tokens are a part of; by default those that the tokens have.
            extract_state_indices: positions in ``modules`` whose inputs to return.
            kwargs: as for :meth:`forward`.

        Returns:
            ``"logits"`` unless ``preprocess_only``; ``"last_state"`` and ``"states"`` (by position) if requested.
            Empty when aborted.
        """
        _check_others(kwargs, names_of(ExLlamaV2.forward_chunk))
        adapters = ExLlamaV2Lora.listed(loras)
        if attention is None:
            check_adapters(self, adapters)
            images = self._images(input_ids, cache, indexed_embeddings) if images is None else images
            attention = self._contiguous(input_ids, cache, input_mask, position_offsets, images)
        else:
            cache = None
        context = ForwardContext(attention, adapters, indexed_embeddings or ())
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
                x = self._run(module, x, context)
                if index in self._layer_ends and context.embeddings:
                    x = add_to_layer(x, input_ids, context.embeddings, self._layer_ends[index])
                    context.replicas.clear()
        if cache is not None:
            cache.current_seq_len += input_ids.shape[1]
        if preprocess_only:
            return result
        if last_id_only:
            x = x[:, -1:]
        if return_last_state:
            result["last_state"] = x.clone()
        # Not in inference mode, since callers may change the logits in place outside of it.
        with torch.no_grad():
            result["logits"] = self._run(self.modules[-1], x, context)
        return result

    def layers(self, ids: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute the input ``[batch, width, hidden]`` of :meth:`head` from ids ``[batch, width]``."""
        x = self.run_modules(range(self.head_layer_idx), ids, context)
        return x.to(self.modules[self.head_layer_idx].device)

    def run_modules(self, numbers: range, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Run some modules on ids, or on the states ``[batch, width, hidden]`` that the module before has computed."""
        for number in numbers:
            x = self._run(self.modules[number], x, context)
        return x

    @property
    def segments(self) -> list[Segment]:
        """The modules before the head by the places that they were loaded to; the last is on the device of the head.

        It may be without modules.
        """
        last = self.head_layer_idx
        starts = [0, *(i for i in range(1, last + 1) if self._places[i] != self._places[i - 1]), last]
        runs = [range(start, stop) for start, stop in itertools.pairwise(starts)]
        return [Segment(self.modules[run.start].device, run) for run in runs]

    def head(self, states: torch.Tensor, context: ForwardContext, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Compute logits ``[..., vocabulary rounded up to 32]`` from states ``[..., hidden]``.

        With int64 ``tokens`` ``[n]``, only their logits ``[..., n]``.
        """
        head = self.modules[self.head_layer_idx]
        assert isinstance(head, Head)
        return head.forward(states, context, tokens)

    @property
    def capturable(self) -> bool:
        """Whether passes can be captured as CUDA graphs: without hooks."""
        return self.loaded and all(module.capturable for module in self.modules)

    @property
    def devices(self) -> list[torch.device]:
        """Distinct devices of modules and of their shards."""
        return list(dict.fromkeys([*(module.device for module in self.modules), *self.shard_devices]))

    @property
    def shard_devices(self) -> list[torch.device]:
        """Devices of the shards of layers that are split over devices, without that of the logits."""
        if self.tp_context is None:
            return []
        return [device for device in dict.fromkeys(self.tp_context.devices) if device != self.tp_context.main]

    @property
    def rotary_tables(self) -> tuple[RotaryTable, RotaryTable]:
        """Rotary tables of full and of sliding layers.

        Raises:
            GenerationError: the model is not loaded.
        """
        if self._rotary is None:
            raise GenerationError("the model is not loaded; call load() or load_autosplit(cache) first")
        return self._rotary

    def update_loras(self) -> None:
        """Do nothing: adapters attach themselves to layers. Part of the interface of exllamav2."""

    def _run(self, module: Module, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        if not self._spread:
            return module.forward(x, context)
        return module.forward(x if x.dtype == torch.long else x.to(module.device), context.on(module.device))

    def _check(self, input_ids: torch.Tensor, cache: ExLlamaV2CacheBase | None, few_logits: bool) -> None:
        batch, width = input_ids.shape
        if cache is not None:
            check_count("cache.current_seq_len", cache.current_seq_len, error=GenerationError)
        length = width if cache is None else cache.current_seq_len + width
        self.config.check_length("the length of the sequence", length, GenerationError)
        if cache is None:
            if width > self._pass_limit(batch):
                raise GenerationError(f"{width} tokens without a cache; one pass takes {self._pass_limit(batch)}")
        elif any(getattr(cache, name) != getattr(self.config, name) for name in _CACHED):
            raise GenerationError("the cache is one of another model; make one with ExLlamaV2Cache(model)")
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

    def _images(
        self,
        input_ids: torch.Tensor,
        cache: ExLlamaV2CacheBase | None,
        embeddings: Sequence[IndexedEmbeddings] | None,
    ) -> PromptImages:
        """Find the images of a prompt, which is alone in its batch."""
        past = cache.current_seq_len if cache is not None else 0
        found = [prompt_images(self.config.arch.lm, row.tolist(), embeddings or (), past) for row in input_ids]
        if len(found) > 1 and any(each is not NO_IMAGES for each in found):
            raise GenerationError("prompts with images of this model are to be given one at a time")
        return found[0] if found else NO_IMAGES

    def _chunks(
        self, input_ids: torch.Tensor, cache: ExLlamaV2CacheBase | None, images: PromptImages
    ) -> Iterator[torch.Tensor]:
        """Split the input into parts that are small enough for one pass."""
        if cache is None:
            yield input_ids
            return
        limit, bound = self._pass_limit(input_ids.shape[0]), self.config.max_attention_size
        start = 0
        for width in chunk_widths(cache.current_seq_len, input_ids.shape[1], limit, bound, images.both_ways):
            yield input_ids[:, start : start + width]
            start += width

    def _contiguous(
        self,
        input_ids: torch.Tensor,
        cache: ExLlamaV2CacheBase | None,
        input_mask: torch.Tensor | None,
        position_offsets: torch.Tensor | None,
        images: PromptImages,
    ) -> AttentionMetadata:
        return contiguous_attention(
            self.rotary_tables,
            self.config.sliding_window,
            cache,
            past=cache.current_seq_len if cache is not None else 0,
            width=input_ids.shape[1],
            padding=input_mask,
            offsets=position_offsets,
            images=images,
            dtype=self.compute_dtype,
            device=self.modules[0].device,
        )


def _check_others(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Warn of misspelt keywords; refuse the one of exllamav2 without which something else is computed."""
    if given.get("attn_params") is not None:
        raise ArgumentError("attn_params is not supported: give input_mask and position_offsets, or attention")
    warn_of_misspelt(given, known, stacklevel=4)
