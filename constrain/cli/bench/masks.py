"""``constrain bench masks``: constraint engines side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Column, Table
from tqdm import tqdm

from constrain.bench.engines import ENGINES
from constrain.cli.bench.group import bench, json_option, tokenizer_option, write_figures
from constrain.cli.options import FOLDER


@bench.command()
@click.argument("data_dir", type=FOLDER)
@tokenizer_option
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
@json_option
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
    write_figures(figures, output)
    console = Console()
    console.print(_table(figures))
    if len(names) > 1:
        console.print(_times(figures, "compiled_by_all"))


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
