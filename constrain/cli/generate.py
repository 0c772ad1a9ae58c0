"""``constrain generate``: generate one output for a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from constrain.cli.options import (
    GpuOptions,
    SchemaParam,
    TextFile,
    filters_option,
    gpu_options,
    max_new_tokens_option,
    model_option,
    seed_option,
)

if TYPE_CHECKING:
    from constrain.extract import Target
    from constrain.filters import NamedFilter


@click.command()
@click.argument("prompt")
@click.option("--schema", "target", type=SchemaParam(), help="Write a JSON document that matches it.")
@click.option("--regex", help="Write a text that this regular expression matches.")
@click.option("--grammar", type=TextFile(), help="Write by a grammar in a file, in Lark's notation or GBNF.")
@click.option("--choice", "choices", multiple=True, help="Write one of these; give the option once for each.")
@click.option("--prefix", help="Begin the answer with this.")
@click.option(
    "--image",
    "images",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Answer PROMPT as a message about this image; several are allowed.",
)
@filters_option
@click.option("--temperature", type=click.FloatRange(min=0), help="0 takes the most likely tokens.  [default: 0.8]")
@model_option
@gpu_options
@max_new_tokens_option
@seed_option
def generate(
    prompt: str,
    target: Target[Any] | None,
    regex: str | None,
    grammar: str | None,
    choices: tuple[str, ...],
    prefix: str | None,
    images: tuple[Path, ...],
    filters: tuple[NamedFilter, ...],
    temperature: float | None,
    model_dir: Path | None,
    max_new_tokens: int,
    seed: int | None,
    gpus: GpuOptions,
) -> None:
    """Continue PROMPT and print what was written.

    With images, PROMPT is a message to a model that reads them, which answers by its chat template.

    Where several constraints are given, all of them hold. The answer is complete within --max-new-tokens, or there is
    an error and nothing on standard output.
    """
    from constrain.llm import load

    parts = [*({"type": "image", "image": image} for image in images), {"type": "text", "text": prompt}]
    answer = load(model_dir, max_batch_size=1, images=bool(images), **gpus).generate(
        None if images else prompt,
        messages=[{"role": "user", "content": parts}] if images else None,
        json_schema=target,
        regex=regex,
        grammar=grammar,
        choices=choices or None,
        prefix=prefix,
        filters=filters,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
    )
    if not answer.complete:
        raise click.ClickException(f"incomplete after {len(answer.tokens)} tokens; see --max-new-tokens: {answer.text}")
    click.echo(answer.text)
    if answer.finish_reason != "stop":
        loop = " in a loop" if answer.finish_reason == "repetition" else ""
        click.echo(f"stopped after {len(answer.tokens)} tokens{loop}; see --max-new-tokens", err=True)
