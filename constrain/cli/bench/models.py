"""``constrain bench`` decode, prefill, load, caches, weights and devices: models with random weights."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.console import Console
from rich.table import Column, Table

from constrain.bench.shapes import SHAPES
from constrain.cli.bench.group import ROWS, bench, json_option, require_gpu, shape_option, write_figures
from constrain.cli.options import FOLDER

# Names in constrain.bench.random_model, which needs torch.
_WEIGHT_FORMS = "int8", "int4", "fp8", "mxfp4", "nvfp4", "exl2"


@bench.command("decode")
@shape_option
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Sequences at a time.")
@click.option("--prompt", type=click.IntRange(min=1), default=128, show_default=True, help="Tokens of each prompt.")
@click.option("--tokens", type=click.IntRange(min=8), default=256, show_default=True, help="New tokens of each.")
@click.option("--weights", type=click.Choice(_WEIGHT_FORMS), help="Form of the layers' weights, instead of bfloat16.")
@click.option("--peers", is_flag=True, help="Measure transformers too, with a static cache and compiled.")
@json_option
def measure_decode(
    shape: str, batch: int, prompt: int, tokens: int, weights: str | None, peers: bool, output: Path | None
) -> None:
    """Measure decoding with random weights.

    Tokens per second of all sequences together: of steps of the model alone, of the dynamic generator, and as a share
    of what the memory bandwidth of the GPU allows.
    """
    from constrain.bench import decode

    require_gpu()
    figures = decode.measure_decode(SHAPES[shape], batch, prompt, tokens, peers, weights) | {"shape": shape}
    write_figures(figures, output)
    title = f"{shape}, {batch} x {prompt} + {tokens} tokens, {figures['device']}"
    Console().print(_rates(title, figures))


@bench.command("prefill")
@shape_option
@click.option("--prompt", type=click.IntRange(min=1), default=4096, show_default=True, help="Tokens of the prompt.")
@click.option("--peers", is_flag=True, help="Measure transformers too.")
@json_option
def measure_prefill(shape: str, prompt: int, peers: bool, output: Path | None) -> None:
    """Measure how fast a prompt goes through a model with random weights.

    Tokens per second, of the model alone and of the dynamic generator up to the first token, and as a share of what the
    rate of large matrix products allows.
    """
    from constrain.bench import prefill

    require_gpu()
    figures = prefill.measure_prefill(SHAPES[shape], prompt, peers) | {"shape": shape}
    write_figures(figures, output)
    title = f"{shape}, {prompt} tokens, {figures['device']}, {figures['matrix_rate'] / 1e12:.0f} TFLOP/s"
    Console().print(_rates(title, figures))


@bench.command("load")
@shape_option
@click.option("--folder", type=FOLDER, help="Where to write the checkpoint; by default where temporary files go.")
@json_option
def measure_load(shape: str, folder: Path | None, output: Path | None) -> None:
    """Measure how fast weights come from a disk to the GPU.

    A checkpoint with random weights is written, loaded, and removed. Gigabytes per second: of reading the files and
    nothing else, of loading the model, and of safetensors; with the files cached by the system and without.
    """
    from constrain.bench import load

    require_gpu()
    with TemporaryDirectory(dir=folder) as made:
        figures = load.measure_load(SHAPES[shape], Path(made)) | {"shape": shape}
    write_figures(figures, output)
    title = f"{shape}, {figures['bytes'] / 1e9:.1f} GB, {figures['device']}, bus {figures['bus'] / 1e9:.1f} GB/s"
    table = Table("GB/s", "cached", "cold", title=title)
    for name, rate in figures["cached"].items():
        table.add_row(name, f"{rate / 1e9:.1f}", f"{figures['cold'][name] / 1e9:.1f}")
    Console().print(table)


@bench.command("caches")
@shape_option
@click.option("--batch", type=ROWS, default=32, show_default=True, help="Sequences at a time.")
@click.option("--context", type=click.IntRange(min=1), default=8192, show_default=True, help="Tokens of each sequence.")
@json_option
def measure_caches(shape: str, batch: int, context: int, output: Path | None) -> None:
    """Measure decoding over quantised caches.

    Memory of each kind of cache, and tokens per second of all sequences together, of steps of the model alone.
    """
    from constrain.bench import caches

    require_gpu()
    figures = caches.measure_caches(SHAPES[shape], batch, context) | {"shape": shape}
    write_figures(figures, output)
    title = f"{shape}, {batch} x {context} tokens, {figures['device']}"
    table = Table(Column("", no_wrap=True), "GB", "tokens/s", title=title)
    for cache in figures["caches"]:
        table.add_row(cache["name"], f"{cache['bytes'] / 1e9:.1f}", f"{cache['tokens_per_second']:,.0f}")
    Console().print(table)


@bench.command("weights")
@click.option(
    "--shape", type=click.Choice(sorted(SHAPES)), default="qwen-2.5-0.5b", show_default=True, help="Shape of the model."
)
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Sequences at a time.")
@json_option
def measure_weights(shape: str, batch: int, output: Path | None) -> None:
    """Measure decoding on the CPU with quantised weights.

    Memory of the matrices, and CPU time of a step of the model alone, with weights in each form that stays packed.
    """
    from constrain.bench import weights

    figures = weights.measure_weights(SHAPES[shape], batch) | {"shape": shape}
    write_figures(figures, output)
    title = f"{shape}, batch {batch}, {figures['device']}"
    table = Table(Column("", no_wrap=True), "MB", "ms a step", "times as fast", title=title)
    plain = figures["forms"][0]["cpu_seconds"]
    for form in figures["forms"]:
        spent = form["cpu_seconds"]
        table.add_row(form["name"], f"{form['bytes'] / 1e6:,.0f}", f"{spent * 1e3:.1f}", f"{plain / spent:.2f}")
    Console().print(table)


@bench.command("devices")
@shape_option
@click.option("--device", "devices", multiple=True, help="A device, given once for each.  [default: all GPUs]")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Sequences at a time.")
@click.option("--prompt", type=click.IntRange(min=1), default=128, show_default=True, help="Tokens of each prompt.")
@click.option("--tokens", type=click.IntRange(min=1), default=256, show_default=True, help="Tokens of each answer.")
@json_option
def measure_devices(
    shape: str, devices: tuple[str, ...], batch: int, prompt: int, tokens: int, output: Path | None
) -> None:
    """Measure decoding over several devices, with every layer split and by layers, compared with the first of them.

    The weights are random, and the same each time. Rates are tokens per second of all sequences together. Greedy tokens
    are those before the first that differs from one device's: of half of the layers in float32, and of the model whose
    rate is measured, in bfloat16, where the order of sums decides between logits of random weights.
    """
    import torch

    from constrain.bench import devices as over_devices

    given = devices or tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    if not given:
        require_gpu()
    figures = over_devices.measure_devices(SHAPES[shape], given, batch, prompt, tokens) | {"shape": shape}
    write_figures(figures, output)
    title = f"{shape}, batch {batch}, {' '.join(given)}, {figures['device']}"
    table = Table(
        Column("", no_wrap=True),
        "model",
        "generator",
        "times one device",
        "same in float32",
        "in bfloat16",
        title=title,
    )
    one = figures["ways"][0]["generator"]
    for way in figures["ways"]:
        rate = way["generator"]
        same = (f"{way[kind]} of 64" for kind in ("same_tokens", "same_rounded_tokens"))
        table.add_row(way["name"], f"{way['model']:,.0f}", f"{rate:,.0f}", f"{rate / one:.2f}", *same)
    Console().print(table)


def _rates(title: str, figures: dict[str, Any]) -> Table:
    table = Table(Column("", no_wrap=True), "tokens/s", "% of limit", title=title)
    for name in ("limit", "model", "generator", "transformers"):
        if figures[name]:
            table.add_row(name, f"{figures[name]:,.0f}", f"{figures[name] / figures['limit'] * 100:.0f}")
    return table
