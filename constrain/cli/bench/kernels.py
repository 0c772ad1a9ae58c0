"""``constrain bench`` quantized, kernels and experts: parts of a model alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Column, Table

from constrain.bench.shapes import MIXTURES, SHAPES
from constrain.cli.bench.group import ROWS, bench, json_option, require_gpu, shape_option, write_figures


@bench.command("quantized")
@shape_option
@json_option
def measure_quantized(shape: str, output: Path | None) -> None:
    """Measure products with weights of few bits.

    Compares them with the memory bandwidth of the GPU.
    """
    from constrain.bench import quantized

    require_gpu()
    figures = quantized.measure_quantized(SHAPES[shape]) | {"shape": shape}
    write_figures(figures, output)
    table = Table("product", "weight", "rows", Column("us", justify="right"), Column("% of limit", justify="right"))
    for each in figures["products"]:
        share = f"{each['share_of_read_limit']:.0%}"
        table.add_row(each["product"], each["weight"], str(each["rows"]), f"{each['seconds'] * 1e6:.1f}", share)
    Console().print(table)


@bench.command("kernels")
@shape_option
@json_option
def measure_kernels(shape: str, output: Path | None) -> None:
    """Measure single CUDA kernels.

    Each is given with the time of torch for the same, and as a share of the rate at which the GPU reads memory.
    """
    from constrain.bench import kernels

    require_gpu()
    figures = kernels.measure_kernels(SHAPES[shape]) | {"shape": shape}
    write_figures(figures, output)
    title = f"{figures['device']}, reads {figures['read_bandwidth'] / 1e12:.2f} TB/s"
    table = Table(Column("", no_wrap=True), "batch", "µs", "torch µs", "% of read limit", title=title)
    for kernel in figures["kernels"]:
        theirs = kernel["torch_seconds"]
        table.add_row(
            kernel["name"],
            str(kernel["batch"]),
            f"{kernel['seconds'] * 1e6:.1f}",
            f"{theirs * 1e6:.1f}" if theirs else "",
            f"{kernel['share_of_read_limit'] * 100:.0f}",
        )
    Console().print(table)


@bench.command("experts")
@click.option(
    "--shape",
    type=click.Choice(sorted(MIXTURES)),
    default="qwen3-30b-a3b",
    show_default=True,
    help="Shape of the model.",
)
@click.option(
    "--batch",
    "batches",
    type=ROWS,
    multiple=True,
    default=(1, 8, 32),
    show_default=True,
    help="Sequences at a time; give the option once for each number.",
)
@click.option("--steps", type=click.IntRange(min=1, max=256), default=64, show_default=True, help="Steps of a run.")
@click.option(
    "--form",
    type=click.Choice(["int4", "int8", "fp8", "mxfp4", "nvfp4"]),
    help="Form in which the weights stay packed; by default they are in bfloat16.",
)
@json_option
def measure_experts(shape: str, batches: tuple[int, ...], steps: int, form: str | None, output: Path | None) -> None:
    """Measure a mixture of experts, with random weights.

    Times the experts of a layer alone, with kernels and in torch, and decode steps of models of a few layers; from the
    latter follow the times of a layer and of the whole model. Limits are the times to read the weights that are used.
    """
    from constrain.bench import experts

    require_gpu()
    figures = experts.measure_experts(MIXTURES[shape], batches, steps, form) | {"shape": shape}
    write_figures(figures, output)
    title = f"{shape}, {figures['form']}, {figures['device']}, reads {figures['read_bandwidth'] / 1e12:.2f} TB/s"
    table = Table(Column("", no_wrap=True), "batch", "experts", "µs", "% of read limit", "torch µs", title=title)
    for found in figures["layer"]:
        _time_row(table, "experts", found, found["seconds"], found["share_of_read_limit"], found["torch_seconds"])
    for found in figures["steps"]:
        for name in ("layer", "model"):
            _time_row(table, name, found, found[f"{name}_seconds"], found[f"{name}_share_of_read_limit"])
    Console().print(table)


def _time_row(
    table: Table, name: str, found: dict[str, Any], seconds: float, share: float, theirs: float | None = None
) -> None:
    values = [str(found["batch"]), f"{found['active_experts']:.1f}", f"{seconds * 1e6:.1f}", f"{share * 100:.0f}"]
    table.add_row(name, *values, f"{theirs * 1e6:.1f}" if theirs else "")
