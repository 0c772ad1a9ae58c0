"""``constrain bench`` step, doors, serve, confidence and faithful: one way to use the runtime beside another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from constrain.bench.shapes import SHAPES
from constrain.cli.bench.group import bench, json_option, require_gpu, shape_option, tokenizer_option, write_figures
from constrain.cli.options import FOLDER, OutputFile, model_option


@bench.command("step")
@click.argument("data_dir", type=FOLDER)
@tokenizer_option
@shape_option
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1, 32, 128),
    show_default=True,
    help="Sequences at a time; give the option once for each number.",
)
@click.option("--tokens", type=click.IntRange(min=8), default=128, show_default=True, help="Most tokens of a text.")
@click.option("--within-budget", is_flag=True, help="Have constrained texts complete within that number of tokens.")
@json_option
def measure_step(
    data_dir: Path,
    tokenizer_dir: Path,
    shape: str,
    batches: tuple[int, ...],
    tokens: int,
    within_budget: bool,
    output: Path | None,
) -> None:
    """Measure decoding under the JSON Schemas in DATA_DIR, compared with decoding without constraints.

    DATA_DIR has files of the form of MaskBench. The weights are random. Tokens per second are those of all sequences
    together, and bytes those that are sent to the GPU for a token. The last line is jump-forward, on the schemas that
    leave the least choice.
    """
    from constrain.bench import step

    require_gpu()
    click.echo("batch  constrained  unconstrained  ratio  bytes/token  forced")
    for figures in step.measure_step(SHAPES[shape], batches, data_dir, tokenizer_dir, tokens, within_budget):
        each = figures.get("jump_forward") or figures["batches"][-1]
        click.echo(
            f"{each['batch']:5}  {each['constrained']:11,.0f}  {each['unconstrained']:13,.0f}  {each['ratio']:5.3f}  "
            f"{each['bytes_per_token']:11.0f}  {each['forced_share']:6.1%}"
        )
        write_figures(figures | {"shape": shape}, output)


@bench.command("doors")
@click.option("--tokenizer", "tokenizer_dir", type=FOLDER, help="Folder with a tokenizer.json.")
@shape_option
@click.option("--built-in", is_flag=True, help="Measure the built-in model, on whatever device there is.")
@click.option(
    "--part",
    "parts",
    type=click.Choice(["fronts", "speculation", "settings"]),
    multiple=True,
    help="Doors to measure; give the option once for each. By default all.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each door.")
@click.option(
    "--seconds", type=click.FloatRange(min=0), default=500, show_default=True, help="Begin no door after this."
)
@click.option("--json", "--output", "output", type=OutputFile(), help="File for all figures, written after each.")
def measure_doors(
    tokenizer_dir: Path | None,
    shape: str,
    built_in: bool,
    parts: tuple[str, ...],
    repeats: int,
    seconds: float,
    output: Path | None,
) -> None:
    """Measure every way to generate tokens, compared with plain decoding.

    Plain is the dynamic generator with default settings, at the same batch, in turns with what is measured. Doors are
    the other generators, LLM, sampling settings and options of jobs, adapters, caches, filters and drafts. The weights
    are random, unless it is the built-in model. Rates are tokens per second of all sequences together.
    """
    from constrain.bench import doors

    options: dict[str, Any] = {"parts": parts or doors.PARTS, "repeats": repeats, "seconds": seconds}
    if built_in:
        shape, figures = "built-in", doors.measure_built_in(**options)
    elif tokenizer_dir is None:
        raise click.UsageError("a model with random weights needs --tokenizer; or give --built-in")
    else:
        require_gpu()
        figures = doors.measure_random(SHAPES[shape], SHAPES["llama-3.2-1b"], tokenizer_dir, **options)
    click.echo(f"{'door':42} batch        rate       plain  ratio  wanted")
    for found in figures:
        click.echo(_door_line(found["doors"][-1]))
        write_figures(found | {"shape": shape}, output)


@bench.command("serve")
@click.option("--model", "model_dir", type=FOLDER, help="Folder of a model.  [default: the built-in model]")
@click.option("--shape", type=click.Choice(sorted(SHAPES)), help="In place of a model, one of random weights.")
@click.option("--tokenizer", "tokenizer_dir", type=FOLDER, help="Folder with a tokenizer.json, for --shape.")
@click.option("--streams", type=click.IntRange(min=1), default=32, show_default=True, help="Streams at a time.")
@click.option("--requests", type=click.IntRange(min=1), default=128, show_default=True, help="Completions of a run.")
@click.option("--tokens", type=click.IntRange(min=8), default=128, show_default=True, help="Tokens of a completion.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each kind.")
@json_option
def measure_server(
    model_dir: Path | None,
    shape: str | None,
    tokenizer_dir: Path | None,
    streams: int,
    requests: int,
    tokens: int,
    repeats: int,
    output: Path | None,
) -> None:
    """Measure the server, compared with generate_many in the same run.

    Rates are tokens per second of all streams together, as clients in another process receive them. The last figure is
    the ratio of tokens per second of processor time.
    """
    from constrain.bench.serving import measure_serving, random_llm
    from constrain.llm import load

    if shape is None:
        llm = load(model_dir, max_batch_size=streams)
    elif tokenizer_dir is None:
        raise click.UsageError("a model with random weights needs --tokenizer")
    else:
        llm = random_llm(SHAPES[shape], tokenizer_dir, streams=streams, tokens=tokens)
    figures = measure_serving(llm, streams=streams, requests=requests, tokens=tokens, repeats=repeats)
    write_figures(figures | {"shape": shape}, output)
    rates = f"server {figures['rate']:,.0f}, generate_many {figures['plain']:,.0f}"
    click.echo(f"{rates}: {figures['ratio']:.3f}; processor time: {figures['processor_ratio']:.3f}")


@bench.command("confidence")
@model_option
@click.option("--documents", type=click.IntRange(min=1), default=64, show_default=True, help="Documents of a run.")
@click.option("--batch", type=click.IntRange(min=1), help="Most documents at a time.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each kind.")
@json_option
def measure_confidence(
    model_dir: Path | None, documents: int, batch: int | None, repeats: int, output: Path | None
) -> None:
    """Measure extraction with confidence, compared with extraction without it in the same run.

    Rates are tokens of records per second, of all documents together.
    """
    from constrain.bench import confidence
    from constrain.llm import load

    llm = load(model_dir, max_batch_size=batch)
    figures = confidence.measure_confidence(llm, documents=documents, repeats=repeats)
    write_figures(figures, output)
    click.echo(f"with confidence {figures['rate']:,.0f}, without {figures['plain']:,.0f}: {figures['ratio']:.3f}")


@bench.command("faithful")
@model_option
@click.option("--outputs", type=click.IntRange(min=1), default=64, show_default=True, help="Outputs of a prompt.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each kind.")
@json_option
def measure_faithful(model_dir: Path | None, outputs: int, repeats: int, output: Path | None) -> None:
    """Measure faithful sampling, beside independent outputs of masked sampling in the same run.

    Ratios of time, in all and per token: faithful outputs may have more tokens.
    """
    from constrain.bench import faithful
    from constrain.llm import load

    llm = load(model_dir, max_batch_size=outputs, max_seq_len=256)
    figures = faithful.measure_faithful(llm, outputs=outputs, repeats=repeats)
    write_figures(figures, output)
    for case in (*figures["cases"], figures | {"name": "all"}):
        click.echo(f"{case['name']:10} {case['ratio']:6.3f} of the time, {case['token_ratio']:6.3f} per token")


def _door_line(door: dict[str, Any]) -> str:
    head = f"{door['name']:42} {door['batch']:5}"
    if "error" in door:
        return f"{head}  {door['error']}"
    wanted = f"{door['wanted']:6.2f}" if door["wanted"] is not None else ""
    short = " (less)" if door["wanted"] is not None and door["ratio"] < door["wanted"] else ""
    return f"{head}  {door['rate']:10,.1f}  {door['plain']:10,.1f}  {door['ratio']:5.3f}  {wanted}{short}"
