"""``constrain evaluate-model``: how well a model predicts a text, and how far it is from its original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Column, Table

from constrain.cli.options import FOLDER
from constrain.cli.progress import bar

if TYPE_CHECKING:
    from constrain.quantization import ModelEvaluation


@click.command("evaluate-model")
@click.argument("model_dir", type=FOLDER, metavar="MODEL")
@click.option(
    "--text",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A text in UTF-8; or with the ending .jsonl several, a line of JSON each.",
)
@click.option("--against", type=FOLDER, help="The model to compare with, as a rule the one that MODEL was made from.")
@click.option(
    "--context",
    type=click.IntRange(min=2),
    help="Tokens of a window.  [default: what the models allow, and no more than 2048]",
)
@click.option(
    "--stride", type=click.IntRange(min=1), help="Tokens between beginnings of windows.  [default: half a window]"
)
@click.option("--max-tokens", type=click.IntRange(min=1), help="Stop after this many tokens.")
@click.option("--json", "as_json", is_flag=True, help="Write the figures as JSON.")
def evaluate_model(
    model_dir: Path,
    path: Path,
    against: Path | None,
    context: int | None,
    stride: int | None,
    max_tokens: int | None,
    as_json: bool,
) -> None:
    """Measure how well MODEL predicts a text: its perplexity.

    With --against, also how far its predictions are from those of another model with the same vocabulary: the
    Kullback-Leibler divergence from the other's distribution at each token, and how often both find the same token most
    likely.

    A line of a .jsonl file is a string, {"text": TEXT}, or {"prompt": TEXT, "text": TEXT}, of which the prompt is read,
    but does not count. The text is read in windows that overlap, each token counts once, and one layer at a time is in
    memory.
    """
    from constrain.quantization import evaluate_model as evaluated
    from constrain.quantization import read_texts

    with bar("Evaluating") as progress:
        evaluation = evaluated(
            model_dir,
            read_texts(path),
            against=against,
            context=context,
            stride=stride,
            max_tokens=max_tokens,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(evaluation.to_json(), indent=2))
    else:
        Console().print(_table(evaluation))


def _table(evaluation: ModelEvaluation) -> Table:
    table = Table("", Column(f"{evaluation.tokens:,} tokens", justify="right"))
    table.add_row("perplexity", f"{evaluation.perplexity:.4f}")
    found = evaluation.divergence
    if found is not None:
        change = evaluation.perplexity / found.perplexity - 1
        table.add_row("perplexity of the original", f"{found.perplexity:.4f}")
        table.add_row("change", f"{change:+.2%}")
        table.add_section()
        for name in ("mean", "median", "p99", "largest"):
            table.add_row(f"divergence, {name}", f"{getattr(found, name):.5f}")
        table.add_row("same most likely token", f"{found.top1:.2%}")
    return table
