"""``constrain bench``: benchmarks of constraint engines and of inference."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.console import Console
from rich.table import Column, Table
from tqdm import tqdm

from constrain.bench.engines import ENGINES
from constrain.bench.shapes import MIXTURES, SHAPES
from constrain.cli.options import FOLDER, OutputFile, model_option
from constrain.errors import BenchmarkError

_tokenizer_option = click.option(
    "--tokenizer", "tokenizer_dir", type=FOLDER, required=True, help="Folder with a tokenizer.json."
)
_shape_option = click.option(
    "--shape", type=click.Choice(sorted(SHAPES)), default="llama-3.1-8b", show_default=True, help="Shape of the model."
)
# Names in constrain.bench.random_model, which needs torch.
_WEIGHT_FORMS = "int8", "int4", "fp8", "mxfp4", "nvfp4", "exl2"
# At most ModelRunner.max_rows, whose module needs torch.
_ROWS = click.IntRange(min=1, max=256)
_json_option = click.option("--json", "output", type=OutputFile(), help="File for all figures.")


@click.group()
def bench() -> None:
    """Measure constraint engines, and inference on a GPU."""


@bench.command()
@click.argument("data_dir", type=FOLDER)
@_tokenizer_option
@click.option(
    "--engine",
    "engines",
    type=click.Choice(sorted(ENGINES)),
    multiple=True,
    default=("constrain",),
    show_default=True,
    help="Engine to measure; give the option once for each.",
)
@click.option("--stride", type=click.IntRange(min=1), default=1, show_default=True, help="Take every n-th case only.")
@click.option("--seconds", type=click.FloatRange(min=0), default=15, show_default=True, help="Most time for a case.")
@click.option("--memory", type=click.FloatRange(min=0), default=8, show_default=True, help="Most GB for an engine.")
@_json_option
def masks(
    data_dir: Path,
    tokenizer_dir: Path,
    engines: tuple[str, ...],
    stride: int,
    seconds: float,
    memory: float,
    output: Path | None,
) -> None:
    """Measure token masks for the JSON Schemas in DATA_DIR.

    DATA_DIR has files of the form of MaskBench: {"schema": ..., "tests": [{"data": ..., "valid": true}, ...]}. Every
    engine runs in a process of its own, and they take turns case by case. The others than constrain come with
    pip install constrain-lm[bench]. Times are in microseconds: of compiling, until the first mask, of masks, of taking
    a token.
    """
    from tokenizers import Tokenizer

    from constrain.bench.cases import case_files, read_cases
    from constrain.bench.masks import run_masks, summaries, token_table
    from constrain.bench.worker import Limits

    files = case_files(data_dir, stride)
    tokens = token_table(tokenizer_dir)
    tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    cases = tqdm(read_cases(files, tokenizer), total=len(files), unit="case", leave=False, disable=None)
    names = list(dict.fromkeys(engines))
    figures = summaries(run_masks(names, tokens, cases, Limits(seconds, int(memory * 2**30))))
    _write(figures, output)
    console = Console()
    console.print(_table(figures))
    if len(names) > 1:
        console.print(_times(figures, "compiled_by_all"))


@bench.command("quantized")
@_shape_option
@_json_option
def measure_quantized(shape: str, output: Path | None) -> None:
    """Measure products with weights of few bits.

    Compares them with the memory bandwidth of the GPU.
    """
    from constrain.bench import quantized

    _require_gpu()
    figures = quantized.measure_quantized(SHAPES[shape]) | {"shape": shape}
    _write(figures, output)
    table = Table("product", "weight", "rows", Column("us", justify="right"), Column("% of limit", justify="right"))
    for each in figures["products"]:
        share = f"{each['share_of_read_limit']:.0%}"
        table.add_row(each["product"], each["weight"], str(each["rows"]), f"{each['seconds'] * 1e6:.1f}", share)
    Console().print(table)


@bench.command("kernels")
@_shape_option
@_json_option
def measure_kernels(shape: str, output: Path | None) -> None:
    """Measure single CUDA kernels.

    Each is given with the time of torch for the same, and as a share of the rate at which the GPU reads memory.
    """
    from constrain.bench import kernels

    _require_gpu()
    figures = kernels.measure_kernels(SHAPES[shape]) | {"shape": shape}
    _write(figures, output)
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


@bench.command("decode")
@_shape_option
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Sequences at a time.")
@click.option("--prompt", type=click.IntRange(min=1), default=128, show_default=True, help="Tokens of each prompt.")
@click.option("--tokens", type=click.IntRange(min=8), default=256, show_default=True, help="New tokens of each.")
@click.option("--weights", type=click.Choice(_WEIGHT_FORMS), help="Form of the layers' weights, instead of bfloat16.")
@click.option("--peers", is_flag=True, help="Measure transformers too, with a static cache and compiled.")
@_json_option
def measure_decode(
    shape: str, batch: int, prompt: int, tokens: int, weights: str | None, peers: bool, output: Path | None
) -> None:
    """Measure decoding with random weights.

    Tokens per second of all sequences together: of steps of the model alone, of the dynamic generator, and as a share
    of what the memory bandwidth of the GPU allows.
    """
    from constrain.bench import decode

    _require_gpu()
    figures = decode.measure_decode(SHAPES[shape], batch, prompt, tokens, peers, weights) | {"shape": shape}
    _write(figures, output)
    title = f"{shape}, {batch} x {prompt} + {tokens} tokens, {figures['device']}"
    Console().print(_rates(title, figures))


@bench.command("prefill")
@_shape_option
@click.option("--prompt", type=click.IntRange(min=1), default=4096, show_default=True, help="Tokens of the prompt.")
@click.option("--peers", is_flag=True, help="Measure transformers too.")
@_json_option
def measure_prefill(shape: str, prompt: int, peers: bool, output: Path | None) -> None:
    """Measure how fast a prompt goes through a model with random weights.

    Tokens per second, of the model alone and of the dynamic generator up to the first token, and as a share of what the
    rate of large matrix products allows.
    """
    from constrain.bench import prefill

    _require_gpu()
    figures = prefill.measure_prefill(SHAPES[shape], prompt, peers) | {"shape": shape}
    _write(figures, output)
    title = f"{shape}, {prompt} tokens, {figures['device']}, {figures['matrix_rate'] / 1e12:.0f} TFLOP/s"
    Console().print(_rates(title, figures))


@bench.command("load")
@_shape_option
@click.option("--folder", type=FOLDER, help="Where to write the checkpoint; by default where temporary files go.")
@_json_option
def measure_load(shape: str, folder: Path | None, output: Path | None) -> None:
    """Measure how fast weights come from a disk to the GPU.

    A checkpoint with random weights is written, loaded, and removed. Gigabytes per second: of reading the files and
    nothing else, of loading the model, and of safetensors; with the files cached by the system and without.
    """
    from constrain.bench import load

    _require_gpu()
    with TemporaryDirectory(dir=folder) as made:
        figures = load.measure_load(SHAPES[shape], Path(made)) | {"shape": shape}
    _write(figures, output)
    title = f"{shape}, {figures['bytes'] / 1e9:.1f} GB, {figures['device']}, bus {figures['bus'] / 1e9:.1f} GB/s"
    table = Table("GB/s", "cached", "cold", title=title)
    for name, rate in figures["cached"].items():
        table.add_row(name, f"{rate / 1e9:.1f}", f"{figures['cold'][name] / 1e9:.1f}")
    Console().print(table)


@bench.command("caches")
@_shape_option
@click.option("--batch", type=_ROWS, default=32, show_default=True, help="Sequences at a time.")
@click.option("--context", type=click.IntRange(min=1), default=8192, show_default=True, help="Tokens of each sequence.")
@_json_option
def measure_caches(shape: str, batch: int, context: int, output: Path | None) -> None:
    """Measure decoding over quantised caches.

    Memory of each kind of cache, and tokens per second of all sequences together, of steps of the model alone.
    """
    from constrain.bench import caches

    _require_gpu()
    figures = caches.measure_caches(SHAPES[shape], batch, context) | {"shape": shape}
    _write(figures, output)
    title = f"{shape}, {batch} x {context} tokens, {figures['device']}"
    table = Table(Column("", no_wrap=True), "GB", "tokens/s", title=title)
    for cache in figures["caches"]:
        table.add_row(cache["name"], f"{cache['bytes'] / 1e9:.1f}", f"{cache['tokens_per_second']:,.0f}")
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
    type=_ROWS,
    multiple=True,
    default=(1, 8, 32),
    show_default=True,
    help="Sequences at a time; give the option once for each number.",
)
@click.option("--steps", type=click.IntRange(min=1, max=256), default=64, show_default=True, help="Steps of a run.")
@_json_option
def measure_experts(shape: str, batches: tuple[int, ...], steps: int, output: Path | None) -> None:
    """Measure a mixture of experts, with random weights.

    Times the experts of a layer alone, with kernels and in torch, and decode steps of models of a few layers; from the
    latter follow the times of a layer and of the whole model. Limits are the times to read the weights that are used.
    """
    from constrain.bench import experts

    _require_gpu()
    figures = experts.measure_experts(MIXTURES[shape], batches, steps) | {"shape": shape}
    _write(figures, output)
    title = f"{shape}, {figures['device']}, reads {figures['read_bandwidth'] / 1e12:.2f} TB/s"
    table = Table(Column("", no_wrap=True), "batch", "experts", "µs", "% of read limit", "torch µs", title=title)
    for found in figures["layer"]:
        _time_row(table, "experts", found, found["seconds"], found["share_of_read_limit"], found["torch_seconds"])
    for found in figures["steps"]:
        for name in ("layer", "model"):
            _time_row(table, name, found, found[f"{name}_seconds"], found[f"{name}_share_of_read_limit"])
    Console().print(table)


@bench.command("weights")
@click.option(
    "--shape", type=click.Choice(sorted(SHAPES)), default="qwen-2.5-0.5b", show_default=True, help="Shape of the model."
)
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Sequences at a time.")
@_json_option
def measure_weights(shape: str, batch: int, output: Path | None) -> None:
    """Measure decoding on the CPU with quantised weights.

    Memory of the matrices, and CPU time of a step of the model alone, with weights in each form that stays packed.
    """
    from constrain.bench import weights

    figures = weights.measure_weights(SHAPES[shape], batch) | {"shape": shape}
    _write(figures, output)
    title = f"{shape}, batch {batch}, {figures['device']}"
    table = Table(Column("", no_wrap=True), "MB", "ms a step", "times as fast", title=title)
    plain = figures["forms"][0]["cpu_seconds"]
    for form in figures["forms"]:
        spent = form["cpu_seconds"]
        table.add_row(form["name"], f"{form['bytes'] / 1e6:,.0f}", f"{spent * 1e3:.1f}", f"{plain / spent:.2f}")
    Console().print(table)


@bench.command("devices")
@_shape_option
@click.option("--device", "devices", multiple=True, help="A device, given once for each.  [default: all GPUs]")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Sequences at a time.")
@click.option("--prompt", type=click.IntRange(min=1), default=128, show_default=True, help="Tokens of each prompt.")
@click.option("--tokens", type=click.IntRange(min=1), default=256, show_default=True, help="Tokens of each answer.")
@_json_option
def measure_devices(
    shape: str, devices: tuple[str, ...], batch: int, prompt: int, tokens: int, output: Path | None
) -> None:
    """Measure decoding over several devices, with every layer split and by layers, compared with the first of them.

    The weights are random, and the same each time. Rates are tokens per second of all sequences together.
    """
    import torch

    from constrain.bench import devices as over_devices

    given = devices or tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    if not given:
        _require_gpu()
    figures = over_devices.measure_devices(SHAPES[shape], given, batch, prompt, tokens) | {"shape": shape}
    _write(figures, output)
    title = f"{shape}, batch {batch}, {' '.join(given)}, {figures['device']}"
    table = Table(Column("", no_wrap=True), "model", "generator", "times one device", "same tokens", title=title)
    one = figures["ways"][0]["generator"]
    for way in figures["ways"]:
        rate = way["generator"]
        numbers = f"{way['model']:,.0f}", f"{rate:,.0f}", f"{rate / one:.2f}", f"{way['same_tokens']} of 64"
        table.add_row(way["name"], *numbers)
    Console().print(table)


@bench.command("step")
@click.argument("data_dir", type=FOLDER)
@_tokenizer_option
@_shape_option
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
@_json_option
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

    _require_gpu()
    click.echo("batch  constrained  unconstrained  ratio  bytes/token  forced")
    for figures in step.measure_step(SHAPES[shape], batches, data_dir, tokenizer_dir, tokens, within_budget):
        each = figures.get("jump_forward") or figures["batches"][-1]
        click.echo(
            f"{each['batch']:5}  {each['constrained']:11,.0f}  {each['unconstrained']:13,.0f}  {each['ratio']:5.3f}  "
            f"{each['bytes_per_token']:11.0f}  {each['forced_share']:6.1%}"
        )
        _write(figures | {"shape": shape}, output)


@bench.command("doors")
@click.option("--tokenizer", "tokenizer_dir", type=FOLDER, help="Folder with a tokenizer.json.")
@_shape_option
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
        _require_gpu()
        figures = doors.measure_random(SHAPES[shape], SHAPES["llama-3.2-1b"], tokenizer_dir, **options)
    click.echo(f"{'door':42} batch        rate       plain  ratio  wanted")
    for found in figures:
        click.echo(_door_line(found["doors"][-1]))
        _write(found | {"shape": shape}, output)


@bench.command("serve")
@click.option("--model", "model_dir", type=FOLDER, help="Folder of a model.  [default: the built-in model]")
@click.option("--shape", type=click.Choice(sorted(SHAPES)), help="In place of a model, one of random weights.")
@click.option("--tokenizer", "tokenizer_dir", type=FOLDER, help="Folder with a tokenizer.json, for --shape.")
@click.option("--streams", type=click.IntRange(min=1), default=32, show_default=True, help="Streams at a time.")
@click.option("--requests", type=click.IntRange(min=1), default=128, show_default=True, help="Completions of a run.")
@click.option("--tokens", type=click.IntRange(min=8), default=128, show_default=True, help="Tokens of a completion.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each kind.")
@_json_option
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
    _write(figures | {"shape": shape}, output)
    rates = f"server {figures['rate']:,.0f}, generate_many {figures['plain']:,.0f}"
    click.echo(f"{rates}: {figures['ratio']:.3f}; processor time: {figures['processor_ratio']:.3f}")


@bench.command("confidence")
@model_option
@click.option("--documents", type=click.IntRange(min=1), default=64, show_default=True, help="Documents of a run.")
@click.option("--batch", type=click.IntRange(min=1), help="Most documents at a time.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each kind.")
@_json_option
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
    _write(figures, output)
    click.echo(f"with confidence {figures['rate']:,.0f}, without {figures['plain']:,.0f}: {figures['ratio']:.3f}")


@bench.command("faithful")
@model_option
@click.option("--outputs", type=click.IntRange(min=1), default=64, show_default=True, help="Outputs of a prompt.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each kind.")
@_json_option
def measure_faithful(model_dir: Path | None, outputs: int, repeats: int, output: Path | None) -> None:
    """Measure faithful sampling, beside independent outputs of masked sampling in the same run.

    Ratios of time, in all and per token: faithful outputs may have more tokens.
    """
    from constrain.bench import faithful
    from constrain.llm import load

    llm = load(model_dir, max_batch_size=outputs, max_seq_len=256)
    figures = faithful.measure_faithful(llm, outputs=outputs, repeats=repeats)
    _write(figures, output)
    for case in (*figures["cases"], figures | {"name": "all"}):
        click.echo(f"{case['name']:10} {case['ratio']:6.3f} of the time, {case['token_ratio']:6.3f} per token")


def _door_line(door: dict[str, Any]) -> str:
    head = f"{door['name']:42} {door['batch']:5}"
    if "error" in door:
        return f"{head}  {door['error']}"
    wanted = f"{door['wanted']:6.2f}" if door["wanted"] is not None else ""
    short = " (less)" if door["wanted"] is not None and door["ratio"] < door["wanted"] else ""
    return f"{head}  {door['rate']:10,.1f}  {door['plain']:10,.1f}  {door['ratio']:5.3f}  {wanted}{short}"


def _write(figures: dict[str, Any], output: Path | None) -> None:
    if output is not None:
        output.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _rates(title: str, figures: dict[str, Any]) -> Table:
    table = Table(Column("", no_wrap=True), "tokens/s", "% of limit", title=title)
    for name in ("limit", "model", "generator", "transformers"):
        if figures[name]:
            table.add_row(name, f"{figures[name]:,.0f}", f"{figures[name] / figures['limit'] * 100:.0f}")
    return table


def _time_row(
    table: Table, name: str, found: dict[str, Any], seconds: float, share: float, theirs: float | None = None
) -> None:
    values = [str(found["batch"]), f"{found['active_experts']:.1f}", f"{seconds * 1e6:.1f}", f"{share * 100:.0f}"]
    _row(table, name, [*values, f"{theirs * 1e6:.1f}" if theirs else ""])


def _require_gpu() -> None:
    from torch import cuda

    from constrain.kernels.cuda import module

    if not cuda.is_available() or module is None:
        raise BenchmarkError("no CUDA device, or constrain was built without a CUDA compiler")


def _table(figures: dict[str, Any]) -> Table:
    table = _times(figures, "all")
    engines = list(figures.values())
    table.add_section()
    _row(table, "set-up s", [f"{engine['set_up']['seconds']:.2f}" for engine in engines])
    _row(table, "  memory MB", [_megabytes(engine["set_up"]["resident_bytes"]) for engine in engines])
    _row(table, "memory of the process MB", [_megabytes(engine["resident_bytes"]) for engine in engines])
    table.add_section()
    for verdict in engines[0]["all"]["verdicts"]:
        _row(table, verdict, [str(engine["all"]["verdicts"][verdict]) for engine in engines])
    counters = {name: None for engine in engines for name in engine["all"]["counters"]}
    table.add_section()
    for name in counters:
        _row(table, name, [_count(engine["all"]["counters"].get(name)) for engine in engines])
    return table


def _times(figures: dict[str, Any], scope: str) -> Table:
    engines = [engine[scope] for engine in figures.values()]
    title = f"{engines[0]['cases']} cases" + (" that all engines compiled" if scope == "compiled_by_all" else "")
    table = Table(Column("µs", no_wrap=True), title=title)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    for kind in ("compile", "first_mask", "mask", "commit"):
        table.add_section()
        found = [engine[kind] for engine in engines]
        _row(table, kind.replace("_", " ") + ": times", [_count(times and times["count"]) for times in found])
        _row(table, "  mean", [_time(times and times["mean"]) for times in found])
        for name in next((times["percentiles"] for times in found if times), ()):
            _row(table, f"  {name}", [_time(times and times["percentiles"][name]) for times in found])
        _row(table, "  max", [_time(times and times["max"]) for times in found])
    return table


def _row(table: Table, name: str, values: list[str]) -> None:
    table.add_row(name, *values)


def _time(microseconds: float | None) -> str:
    if microseconds is None:
        return ""
    return f"{microseconds:,.1f}" if microseconds < 1000 else f"{microseconds:,.0f}"


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f}"
