"""Loading of models from a folder of weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from constrain.arguments import check_count
from constrain.errors import ModelError
from constrain.extract import Calibration, Prompt
from constrain.llm.front import LLM
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Cache_TP, ExLlamaV2Config, ExLlamaV2VisionTower
from constrain.model.devices import free_memory
from constrain.model.memory import module_sizes, token_bytes
from constrain.model.shard_memory import cache_shares
from constrain.runtime import Runtime
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE
from constrain.tokenizer import ExLlamaV2Tokenizer

_log = logging.getLogger(__name__)

#: Maximum default context of :func:`load`: many models allow far more than most texts need.
DEFAULT_CONTEXT = 8192
#: Number of full contexts that fit in the default KV cache, on a GPU and elsewhere; fewer if they would take more than
#: half of the free memory.
_GPU_CONTEXTS, _CPU_CONTEXTS = 32, 8


def load(
    path: str | Path | None = None,
    *,
    max_seq_len: int | None = None,
    max_batch_size: int | None = None,
    cache_tokens: int | None = None,
    prompt: Prompt | None = None,
    calibration: Calibration | str | Path | None = None,
    images: bool | None = False,
    gpu_split: Sequence[float] | None = None,
    tensor_parallel: bool | Sequence[str] = False,
) -> LLM:
    """Load a model, onto the GPU if there is one.

    Args:
        path: folder of a model (``config.json``, ``tokenizer.json``, ``*.safetensors``); the built-in model if omitted.
        max_seq_len: longest prompt and answer together, in tokens; by default what the model allows, and no more than
            8192.
        max_batch_size: most requests that run at a time; by default as many as fit in the KV cache.
        cache_tokens: size of the KV cache in tokens, shared by all running requests, rounded up to whole pages of 256.
            By default ``max_batch_size`` times ``max_seq_len`` (without a ``max_batch_size``, 32 times on a GPU and 8
            times elsewhere), but no more than half of the free memory, and at least ``max_seq_len``.
        prompt: builds the prompt of an extraction from a schema and a text; by default it is made in the form that fits
            the model, see :class:`~constrain.extract.Extractor`.
        calibration: makes the probabilities of extracted values the shares of right values, and doubtful values null;
            or the path of one. By default ``constrain_calibration.json`` in the model's folder, if it is there.
        images: load the vision tower too; ``None``: if the model has one that is supported. Then documents may be
            images, and messages may have contents with images: a list of parts, such as
            ``{"type": "image", "image": image}`` and ``{"type": "text", "text": "What is the total?"}``, or those of
            OpenAI's APIs. An image is a Pillow image, the path or the bytes of a file, or a ``data:`` URL.
        gpu_split: gigabytes of weights for each GPU, if the model is to be split over several by layers.
        tensor_parallel: split every layer over all GPUs, or over these devices; then ``gpu_split`` has the gigabytes of
            weights and cache for each, to which the parts are proportional.

    Raises:
        ModelError: the folder cannot be used, ``max_seq_len`` is not supported, or the GPUs have too little memory;
            names the file, tensor or setting at fault.
        ArgumentError: an argument is of the wrong type or out of range.
    """
    for name, number in {"max_batch_size": max_batch_size, "cache_tokens": cache_tokens}.items():
        if number is not None:
            check_count(name, number, 1)
    model, tokenizer = load_model(path, max_seq_len, gpu_split, tensor_parallel)
    tower = _load_tower(model) if images else _known_tower(model) if images is None else None
    tokens = _whole_pages(cache_tokens or _default_tokens(model, max_batch_size))
    cache = (ExLlamaV2Cache_TP if model.tp_context else ExLlamaV2Cache)(model, max_seq_len=tokens)
    return LLM(
        Runtime(
            model, cache, tokenizer, page_size=PAGED_PAGE_SIZE, max_batch_size=max_batch_size or ModelRunner.max_rows
        ),
        prompt,
        calibration,
        tower,
    )


def _load_tower(model: ExLlamaV2) -> ExLlamaV2VisionTower:
    tower = ExLlamaV2VisionTower(model.config)
    tower.load()
    return tower


def _known_tower(model: ExLlamaV2) -> ExLlamaV2VisionTower | None:
    """Load the vision tower, unless there is none, or one that is not supported."""
    if not model.config.vision_model_type:
        return None
    try:
        return _load_tower(model)
    except ModelError as error:
        _log.warning("images are not read: %s", error)
        return None


def load_model(
    path: str | Path | None = None,
    max_seq_len: int | None = None,
    gpu_split: Sequence[float] | None = None,
    tensor_parallel: bool | Sequence[str] = False,
) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """Load a model and its tokenizer, to build a runtime or generator from; arguments as for :func:`load`."""
    from constrain.demo import model_dir

    start = perf_counter()
    config = ExLlamaV2Config(model_dir() if path is None else path)
    config.max_seq_len = min(config.max_seq_len, DEFAULT_CONTEXT) if max_seq_len is None else max_seq_len
    tokenizer = ExLlamaV2Tokenizer(config)
    model = ExLlamaV2(config)
    split = None if gpu_split is None else list(gpu_split)
    if tensor_parallel:
        model.load_tp(split, devices=None if tensor_parallel is True else list(tensor_parallel))
    else:
        model.load(split)
    seconds, size = perf_counter() - start, sum(module_sizes(model))
    _log.info("loaded %s: %d bytes of weights in %.2f s", config.model_dir, size, seconds)
    return model, tokenizer


def _default_tokens(model: ExLlamaV2, max_batch_size: int | None) -> int:
    """Return the default size of the KV cache in tokens."""
    context = _whole_pages(model.config.max_seq_len)
    device = model.modules[-1].device
    contexts = min(max_batch_size or (_GPU_CONTEXTS if device.type == "cuda" else _CPU_CONTEXTS), ModelRunner.max_rows)
    affordable = int(min(free_memory(0)) / 2 / (token_bytes(model, ExLlamaV2Cache) * _largest_part(model)))
    return min(contexts * context, max(context, affordable // PAGED_PAGE_SIZE * PAGED_PAGE_SIZE))


def _largest_part(model: ExLlamaV2) -> float:
    """Return the largest part of the KV cache that one device has, of models whose layers are split."""
    return 1.0 if model.tp_context is None else max(cache_shares(model, model.tp_context))


def _whole_pages(tokens: int) -> int:
    return -(-tokens // PAGED_PAGE_SIZE) * PAGED_PAGE_SIZE
