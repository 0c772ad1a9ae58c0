"""``constrain quantize``: a model in four or eight bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from constrain.cli.options import FOLDER
from constrain.cli.progress import bar

if TYPE_CHECKING:
    from constrain.quantization import Quantization


@click.command()
@click.argument("model_dir", type=FOLDER, metavar="MODEL")
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--bits", type=click.Choice(["4", "8"]), default="4", show_default=True, help="Bits of a weight.")
@click.option(
    "--group-size",
    type=click.IntRange(min=0),
    help="Weights of a row that share a scale; 0: all.  [default: 128, 64 or 32, the first that divides all rows]",
)
@click.option(
    "--calibration",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Texts of the kind that the model will be used for: UTF-8, or with the ending .jsonl a line of JSON each.",
)
@click.option("--max-tokens", type=click.IntRange(min=1), help="Most tokens to calibrate with.  [default: 262144]")
@click.option(
    "--context",
    type=click.IntRange(min=2),
    help="Most tokens to read at a time.  [default: what the model allows, and no more than 2048]",
)
@click.option("--head-bits", type=click.Choice(["8"]), help="Quantise the head too, in this many bits.")
@click.option(
    "--activation-order/--input-order",
    default=True,
    show_default=True,
    help="Round inputs with large activations first, or all in their order.",
)
@click.option(
    "--damping",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="Share of the mean of the squared activations that is added to each.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the figures, with the error of each layer, as JSON.")
def quantize(
    model_dir: Path,
    out: Path,
    bits: str,
    group_size: int | None,
    calibration: Path | None,
    max_tokens: int | None,
    context: int | None,
    head_bits: str | None,
    activation_order: bool,
    damping: float,
    as_json: bool,
) -> None:
    """Convert MODEL to four or eight bits, and write it to the folder OUT.

    The files are in the pack-quantized form of compressed-tensors. With texts to calibrate with, the rounding errors of
    the weights of a row make up for one another (GPTQ); without, each weight is rounded to the nearest. One layer is in
    memory at a time. After an interruption, the same command goes on with the next layer.

    Use texts of the kind that the model will be used for, and others for constrain evaluate-model, which tells what the
    conversion has cost.
    """
    from constrain.quantization import quantize as quantized
    from constrain.quantization import read_texts
    from constrain.quantization.conversion import DEFAULT_TOKENS

    with bar("Quantising") as progress:
        done = quantized(
            model_dir,
            out,
            bits=int(bits),
            group_size=group_size,
            calibration=None if calibration is None else read_texts(calibration),
            head_bits=None if head_bits is None else int(head_bits),
            context=context,
            max_tokens=max_tokens or DEFAULT_TOKENS,
            activation_order=activation_order,
            damping=damping,
            progress=progress,
        )
    click.echo(json.dumps(done.to_json(), indent=2) if as_json else _summary(done))


def _summary(done: Quantization) -> str:
    groups = "a scale for each row" if done.group_size is None else f"groups of {done.group_size}"
    how = f"calibrated with {done.tokens:,} tokens" if done.tokens else "rounded to the nearest"
    worst = max(done.errors, key=lambda key: done.errors[key])
    mean = sum(done.errors.values()) / len(done.errors)
    of_what = "products" if done.tokens else "weights"
    return (
        f"{done.folder}: {done.bits} bits in {groups}, {how}\n"
        f"{done.bytes / 1e6:,.1f} MB of weights, before {done.source_bytes / 1e6:,.1f} MB\n"
        f"error of the {of_what} of a layer: {mean:.2%} in the mean, {done.errors[worst]:.2%} at most ({worst})"
    )
