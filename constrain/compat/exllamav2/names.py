"""The names in the modules of exllamav2 0.3.2, and the objects of constrain that they refer to."""

from __future__ import annotations

VERSION = "0.3.2"

#: Modules that are packages.
PACKAGES = frozenset({"", "conversion", "generator", "generator.filters", "tokenizer", "vlm"})

_HERE = "constrain.compat.exllamav2."

#: Source of a name: a module, and the name there.
Source = tuple[str, str]


def _same(home: str, names: str) -> dict[str, Source]:
    """Return sources for names that are the same in both."""
    return {name: (home, name) for name in names.split()}


_VERSION = {"__version__": (_HERE + "names", "VERSION")}
_MODEL = _same(_HERE + "model", "ExLlamaV2")
_CONFIG = _same(_HERE + "config", "ExLlamaV2Config")
_CACHES = {
    **_same("constrain.model", "ExLlamaV2CacheBase ExLlamaV2Cache ExLlamaV2Cache_8bit"),
    **_same("constrain.model", "ExLlamaV2Cache_Q4 ExLlamaV2Cache_Q6 ExLlamaV2Cache_Q8 ExLlamaV2Cache_TP"),
}
_FILTERS = {
    "base": _same("constrain.filters", "ExLlamaV2Filter"),
    "prefix": _same("constrain.filters", "ExLlamaV2PrefixFilter"),
    "select": _same("constrain.filters", "ExLlamaV2SelectFilter"),
}
_HOOKS = _same("constrain.generator", "ExLlamaV2PostSamplingHook ExLlamaV2PostSamplingResult")
_SAMPLER = _same("constrain.generator", "ExLlamaV2Sampler")
_BASE = _same(_HERE + "generators", "ExLlamaV2BaseGenerator")
_DYNAMIC = _same(_HERE + "generators", "ExLlamaV2DynamicGenerator ExLlamaV2DynamicJob")
_ASYNC = {
    **_same(_HERE + "generators", "ExLlamaV2DynamicGeneratorAsync"),
    **_same("constrain.generator", "ExLlamaV2DynamicJobAsync"),
}
_STREAMING = _same(_HERE + "generators", "ExLlamaV2StreamingGenerator")
_MM_EMBEDDING = _same("constrain.model", "ExLlamaV2MMEmbedding")
_VISION_TOWER = _same("constrain.model", "ExLlamaV2VisionTower")
_PROJECTOR = _same(_HERE + "absent", "ExLlamaV2MultimodalProjector")
_TOOLS = _same("constrain.model", "SeqTensor Timer")
_LAYERS = {
    "ExLlamaV2Attention": (_HERE + "layers", "ExLlamaV2Attention"),
    "ExLlamaV2Embedding": ("constrain.model.modules", "Embedding"),
    "ExLlamaV2Linear": ("constrain.model.modules", "Linear"),
    "ExLlamaV2MLP": ("constrain.model.modules", "MLP"),
    "ExLlamaV2MoEMLP": ("constrain.model.mixture", "Mixture"),
    "ExLlamaV2RMSNorm": ("constrain.model.modules", "RMSNorm"),
    "ExLlamaV2LayerNorm": ("constrain.model.modules", "LayerNorm"),
    "ExLlamaV2ParallelDecoder": ("constrain.model.modules", "ParallelLayer"),
    **_same(_HERE + "absent", "ExLlamaV2PosEmbedding"),
}
_BACKENDS = {
    "ExLlamaV2TokenizerBase": ("constrain.tokenizer", "ExLlamaV2TokenizerHF"),
    **_same("constrain.tokenizer", "ExLlamaV2TokenizerHF"),
}

#: Sources of names, by the name of the module in exllamav2 (``""``: the package itself).
MODULES: dict[str, dict[str, Source]] = {
    "": {
        **_VERSION,
        **_CONFIG,
        **_MODEL,
        **_same("constrain.model", "ExLlamaV2Lora Intervention"),
        **_CACHES,
        **_same("constrain.tokenizer", "ExLlamaV2Tokenizer"),
        **_TOOLS,
        **_PROJECTOR,
        **_VISION_TOWER,
    },
    "architecture": {
        "ExLlamaV2ArchParams": ("constrain.model.architecture", "Architecture"),
        **_same(_HERE + "absent", "RopeStyle"),
    },
    "attn": {
        "ExLlamaV2Attention": _LAYERS["ExLlamaV2Attention"],
        **_same(_HERE + "attention", "has_flash_attn has_flash_attn_with_paged has_flash_attn_with_window"),
        **_same(_HERE + "attention", "has_flash_attn_with_softcap has_xformers has_lower_right_sdpa assert_paged_attn"),
    },
    "cache": {**_CACHES, **_same("constrain.model", "ExLlamaV2Cache_Q")},
    "compat": _same(_HERE + "tools", "pairwise safe_move_tensor test_gpu_peer_copy"),
    "config": _CONFIG,
    "conversion": {},
    "conversion.quantize": _same(_HERE + "live_tensors", "list_live_tensors"),
    "conversion.tokenize": _same(_HERE + "datasets", "get_tokens"),
    "embedding": {
        "ExLlamaV2Embedding": _LAYERS["ExLlamaV2Embedding"],
        **_same("constrain.model", "EMBEDDING_INDEX"),
    },
    "ext": {
        "exllamav2_ext": (_HERE + "extension", "EXTENSION"),
        "ext_c": (_HERE + "extension", "EXTENSION"),
        **_same(_HERE + "extension", "none_tensor make_q_matrix make_group_map"),
    },
    "generator": {
        **_VERSION,
        **_SAMPLER,
        **_BASE,
        **_STREAMING,
        **_DYNAMIC,
        **_ASYNC,
        **_MM_EMBEDDING,
        **_HOOKS,
    },
    "generator.base": {**_BASE, **_FILTERS["base"], **_SAMPLER, **_HOOKS},
    "generator.dynamic": {
        **_DYNAMIC,
        **_same("constrain.runtime.page_allocator", "PAGED_PAGE_SIZE"),
        "CachePage": ("constrain.runtime.page_allocator", "KVPage"),
        "NGramTrie": (_HERE + "ngram", "NgramCache"),
    },
    "generator.dynamic_async": _ASYNC,
    "generator.dynamic_embeddings": {
        **_MM_EMBEDDING,
        "ExLlamaV2MMAllocator": ("constrain.model.embeddings", "IdAllocator"),
        "global_allocator": ("constrain.model.embeddings", "ID_ALLOCATOR"),
    },
    "generator.filters": {**_VERSION, **_FILTERS["base"], **_FILTERS["select"], **_FILTERS["prefix"]},
    **{f"generator.filters.{name}": names for name, names in _FILTERS.items()},
    "generator.hooks": _HOOKS,
    "generator.ngram": _same(_HERE + "ngram", "NgramCache NgramCacheNode"),
    "generator.sampler": {**_SAMPLER, "NgramNode": (_HERE + "ngram", "NgramCacheNode")},
    "generator.streaming": {**_STREAMING, **_FILTERS["base"], **_same(_HERE + "ngram", "NgramCache")},
    "lora": _same("constrain.model", "ExLlamaV2Lora"),
    "linear": {"ExLlamaV2Linear": _LAYERS["ExLlamaV2Linear"]},
    "mlp": {"ExLlamaV2MLP": _LAYERS["ExLlamaV2MLP"]},
    "model": {**_MODEL, **_LAYERS},
    "model_init": {
        **_same("constrain.model_init", "add_args check_args print_options post_init_load"),
        **_same(_HERE + "model", "init"),
    },
    "moe_mlp": {"ExLlamaV2MoEMLP": _LAYERS["ExLlamaV2MoEMLP"]},
    "module": {
        "ExLlamaV2Module": ("constrain.model.modules", "Module"),
        **_same("constrain.model", "Intervention"),
    },
    "parallel_decoder": {"ExLlamaV2ParallelDecoder": _LAYERS["ExLlamaV2ParallelDecoder"]},
    "rmsnorm": {"ExLlamaV2RMSNorm": _LAYERS["ExLlamaV2RMSNorm"]},
    "server": _same(_HERE + "server", "ExLlamaV2WebSocketServer"),
    "stloader": _same(_HERE + "tensor_file", "STFile cleanup_stfiles"),
    "tokenizer": _BACKENDS,
    "tokenizer.base": {"ExLlamaV2TokenizerBase": _BACKENDS["ExLlamaV2TokenizerBase"]},
    "tokenizer.hf": {"ExLlamaV2TokenizerHF": _BACKENDS["ExLlamaV2TokenizerHF"]},
    "tokenizer.tokenizer": _same("constrain.tokenizer", "ExLlamaV2Tokenizer"),
    "util": {
        **_TOOLS,
        **_same(_HERE + "tools", "cuda_sync_active get_all_gpu_memory get_basic_progress get_visible_devices"),
        **_same(_HERE + "tools", "integer_split pack_4bit print_vram_usage print_vram_usage_peak timed unpack_4bit"),
        **_same(_HERE + "live_tensors", "diff_snapshot list_live_tensors set_snapshot"),
    },
    "version": _VERSION,
    "vlm": {},
    "vlm.mmprojector": _PROJECTOR,
    "vlm.vision_tower": _VISION_TOWER,
}
