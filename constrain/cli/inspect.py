"""Commands that inspect without generating: ``plugins`` and ``info``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table
from safetensors import safe_open

from constrain.cli.options import FOLDER
from constrain.cli.tables import table_console
from constrain.errors import CacheError

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2, ExLlamaV2Config


@click.command()
def plugins() -> None:
    """List the filters that have a name.

    These can be made by constrain.filters.create. Plugins that could not be loaded are listed too.
    """
    from constrain.filters import available, broken

    table = Table("filter", "plugin", "from", "version", "arguments")
    for info in available():
        table.add_row(*map(escape, (info.name, info.plugin, info.origin, info.version, info.signature)))
    console = table_console()
    console.print(table)
    for plugin in broken():
        console.print(f"not loaded: {plugin.name} of {plugin.origin} {plugin.version}: {plugin.error}", style="red")


@click.command("info")
@click.argument("model_dir", type=FOLDER)
@click.option("--tensor-parallel", "gpus", type=click.IntRange(min=1), help="Show the parts of this many GPUs, too.")
def info(model_dir: Path, gpus: int | None) -> None:
    """Describe the model in MODEL_DIR.

    Its weights are not loaded; said is also how much memory it would take here. Caches are given as bytes for a token
    of context, and as the longest that fits next to the weights: into the memory that is free on the GPUs now, or
    without a GPU into that of the machine.
    """
    from constrain.extract.prompts.choose import choose_form
    from constrain.model import ExLlamaV2, ExLlamaV2Config
    from constrain.tokenizer import ExLlamaV2Tokenizer

    config = ExLlamaV2Config(str(model_dir))
    tensors = list(_tensors(config.tensor_files))
    table = Table(show_header=False)
    for name, value in {
        "architecture": config.architecture,
        "parameters": f"{sum(math.prod(shape) for _, shape in config.layout.tensors()):,}",
        "tensors": ", ".join(f"{count} × {kind}" for kind, count in Counter(kind for kind, _ in tensors).most_common()),
        "layers": str(config.num_hidden_layers),
        "hidden size": f"{config.hidden_size} ({config.intermediate_size} in the MLP)",
        **_experts(config),
        "heads": f"{config.num_attention_heads} ({config.num_key_value_heads} for keys and values)",
        **_attention(config),
        **({"images": f"read by a {config.vision_model_type} tower"} if config.vision_model_type else {}),
        "vocabulary": f"{config.vocab_size:,}",
        "context": f"{config.max_seq_len:,} tokens",
        "prompt": choose_form(ExLlamaV2Tokenizer(config)).description,
    }.items():
        table.add_row(name, value)
    model = ExLlamaV2(config)
    model.choose_dtype()
    console = table_console()
    console.print(table)
    console.print(_memory(model))
    if gpus is not None:
        console.print(_shards(model, gpus))


def _experts(config: ExLlamaV2Config) -> dict[str, str]:
    experts = config.experts
    if experts is None:
        return {}
    shared = f"; one of {experts.shared_size} for all" if experts.shared_size else ""
    layers = f"{sum(experts.layers)} layers of {experts.count}"
    return {"experts": f"{layers} ({experts.size} each, {experts.routing.chosen} for a token){shared}"}


def _attention(config: ExLlamaV2Config) -> dict[str, str]:
    if config.latent:
        sizes = f"{config.latent.rank} + {config.latent.rotated} features a token"
        return {"attention": f"latent, of {sizes}{_uncompiled(config)}"}
    return {"attention": f"sinks{_uncompiled(config)}"} if config.arch.lm.sinks else {}


def _uncompiled(config: ExLlamaV2Config) -> str:
    return ", for which there is no compiled kernel" if config.attends_by_scores else ""


def _memory(model: ExLlamaV2) -> Table:
    from constrain import model as kinds
    from constrain.model.memory import longest_cache, module_sizes, packed_forms, token_bytes

    dtypes = [name for name in (", ".join(packed_forms(model)), str(model.compute_dtype)[6:]) if name]
    weights = f"{_memory_size(sum(module_sizes(model)))} of weights in {' and '.join(dtypes)}"
    table = Table("cache", "bytes a token", "longest here", title=weights)
    for name in ("", "_8bit", "_Q8", "_Q6", "_Q4"):
        kind = getattr(kinds, f"ExLlamaV2Cache{name}")
        try:
            table.add_row(kind.__name__, f"{token_bytes(model, kind):,}", f"{longest_cache(model, kind):,} tokens")
        except CacheError:
            continue  # this cache type does not support the head size
    return table


def _shards(model: ExLlamaV2, gpus: int) -> Table:
    """Describe the equal parts of a model of which every layer is split."""
    import torch

    from constrain.model import ExLlamaV2Cache
    from constrain.model.memory import token_bytes
    from constrain.model.shard_memory import cache_shares, shard_weights
    from constrain.model.sharding import make_plan

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    plan = make_plan(model.config, [torch.device(kind, gpu) for gpu in range(gpus)], [1.0] * gpus, model.compute_dtype)
    token, shares = token_bytes(model, ExLlamaV2Cache), cache_shares(model, plan)
    weights, parts = shard_weights(model, plan), plan.layers[-1]
    table = Table("GPU", "heads", "for keys and values", "inner features", "weights", "cache, bytes a token")
    for gpu in range(gpus):
        counts = (str(len(part[gpu])) for part in (parts.heads, parts.kv_heads, parts.inner))
        table.add_row(str(gpu), *counts, _memory_size(weights[gpu]), f"{int(token * shares[gpu]):,}")
    return table


def _memory_size(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB" if size >= 1024**3 else f"{size / 1024**2:.1f} MiB"


def _tensors(files: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the type and the number of elements of every tensor."""
    for file in files:
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - neither a mapping nor iterable
                tensor = tensors.get_slice(name)
                yield tensor.get_dtype(), math.prod(tensor.get_shape())
