"""``constrain profile-schema``: what a schema costs, before it is used in production."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Column, Table

from constrain.cli.options import FOLDER, SchemaParam, TextFile
from constrain.cli.tables import table_console

if TYPE_CHECKING:
    from constrain.engine.profile import SchemaProfile
    from constrain.extract import Target

_PASSES = {"first": "first time", "again": "again", "within_budget": "within a budget"}


@click.command("profile-schema")
@click.argument("target", metavar="SCHEMA", type=SchemaParam())
@click.option(
    "--tokenizer",
    "tokenizer_dir",
    type=FOLDER,
    help="Folder with a tokenizer.json, such as that of a model.  [default: the built-in model]",
)
@click.option(
    "--instance",
    "instances",
    type=TextFile(),
    multiple=True,
    help="File with a valid JSON document; may be given several times.",
)
@click.option(
    "--walks",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Number of random documents, in addition to those given.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random documents.")
@click.option(
    "--slowest", type=click.IntRange(min=0), default=5, show_default=True, help="Number of slow masks to explain."
)
@click.option("--json", "as_json", is_flag=True, help="Write the profile as JSON.")
def profile_schema(
    target: Target[Any],
    tokenizer_dir: Path | None,
    instances: tuple[str, ...],
    walks: int,
    seed: int,
    slowest: int,
    as_json: bool,
) -> None:
    """Say what SCHEMA costs.

    SCHEMA is a file with a JSON Schema, or a Python type as module:Type. Compiles it for the vocabulary of a tokenizer,
    and computes the masks along documents: the first time, again, and with only as many tokens left as each document
    takes. Says how long that takes, and of the slowest masks where they are and why. Quotes may be any strings here.
    """
    from tokenizers import Tokenizer

    from constrain.demo import model_dir
    from constrain.engine import Vocabulary
    from constrain.engine.profile import profile_schema as profiled
    from constrain.extract.evidence import without_verbatim

    folder = tokenizer_dir or model_dir()
    vocabulary = Vocabulary.from_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    documents = [tokenizer.encode(text.strip(), add_special_tokens=False).ids for text in instances]
    schema = without_verbatim(target.schema)
    profile = profiled(schema, vocabulary, documents, num_walks=walks, seed=seed)
    if as_json:
        click.echo(json.dumps(profile.json(slowest), indent=2))
    else:
        _print(profile, slowest)


def _print(profile: SchemaProfile, slowest: int) -> None:
    given, sampled = profile.documents
    click.echo(f"compiled in {_time(profile.compile_seconds)}, first mask after {_time(profile.first_mask_seconds)}")
    states = f"{profile.states:,} states after compilation, {profile.final_states:,} after all masks"
    click.echo(f"{states}; {profile.nbytes / 1e6:.1f} MB")
    click.echo(f"documents: {given} given, {sampled} sampled")
    console = table_console()
    console.print(_figures(profile))
    if slowest:
        console.print(_slowest(profile, slowest))


def _figures(profile: SchemaProfile) -> Table:
    from constrain.engine.profile import MaskTimes

    headings = ("count", "cached", "mean", "p50", "p99", "slowest", "nodes visited")
    table = Table("masks", *(Column(heading, justify="right") for heading in headings))
    for name, costs in profile.passes.items():
        times = MaskTimes.of(costs)
        seconds = map(_time, (times.mean, times.p50, times.p99, times.slowest))
        counts = (f"{times.count:,}", f"{times.cached:,}")
        table.add_row(_PASSES[name], *counts, *seconds, f"{times.nodes_visited:,.0f}")
    return table


def _slowest(profile: SchemaProfile, count: int) -> Table:
    table = Table(
        Column("slowest at", overflow="fold"), "byte", "time", "tokens", "why", Column("after", overflow="fold")
    )
    for name, mask in profile.slowest(count):
        place = f"{mask.pointer or 'the root'} of document {mask.document}"
        row = (place, f"{mask.position:,}", _time(mask.seconds), f"{mask.allowed:,}")
        table.add_row(*map(escape, (*row, _PASSES[name], mask.reason, repr(mask.before))))
    return table


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:,.1f} ms"
