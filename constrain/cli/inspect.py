"""Commands that look without generating: ``check-schema``, ``plugins`` and ``info``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from safetensors import safe_open

from constrain.cli.options import SchemaParam, model_option
from constrain.errors import GrammarError

if TYPE_CHECKING:
    from constrain.engine import Report
    from constrain.extract import Target


@click.command("check-schema")
@click.argument("target", metavar="SCHEMA", type=SchemaParam())
@click.option(
    "--text",
    type=click.File(encoding="utf-8"),
    help="Say where this document departs from SCHEMA; - reads standard input.",
)
@model_option
@click.pass_context
def check_schema(ctx: click.Context, target: Target[Any], text: IO[str] | None, model_dir: Path | None) -> None:
    """Say what of SCHEMA is enforced.

    SCHEMA is a file with a JSON Schema, or a Python type as module:Type. Lists every keyword that is enforced, those
    that are enforced more strictly than written, and those that do not constrain anything, each with its place. If the
    schema cannot be enforced exactly, says where and why, and exits with code 1.

    With --text, says instead whether a document would be let through, and if not, where it goes wrong and what was
    expected there; the exit code is then 1.
    """
    from constrain.demo import model_dir as built_in
    from constrain.engine import Vocabulary, compile_json_schema

    vocabulary = Vocabulary.from_pretrained(model_dir or built_in())
    try:
        grammar = compile_json_schema(target.schema, vocabulary)
    except GrammarError as error:
        click.echo(f"not supported: {error}", err=True)
        ctx.exit(1)
    if text is None:
        _print_report(grammar.report)
        return
    try:
        document = text.read().rstrip("\n")  # files end with a line break, which is no part of the document
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{text.name} is not UTF-8 text: {error}") from error
    explanation = grammar.explain(document)
    click.echo(explanation)
    ctx.exit(0 if explanation.accepted else 1)


def _print_report(report: Report) -> None:
    table = Table("", "where", "keyword", "note")
    for status, entries in vars(report).items():
        for entry in entries:
            table.add_row(status, f"#{entry.pointer}", entry.keyword, entry.note)
    Console().print(table)


@click.command()
def plugins() -> None:
    """List the filters that can be made by name, and the plugins that could not be loaded."""
    from constrain.filters import available, broken

    table = Table("filter", "plugin", "from", "version", "arguments")
    for info in available():
        table.add_row(*map(escape, (info.name, info.plugin, info.origin, info.version, info.signature)))
    console = Console()
    console.print(table)
    for plugin in broken():
        console.print(f"not loaded: {plugin.name} of {plugin.origin} {plugin.version}: {plugin.error}", style="red")


@click.command("info")
@click.argument("model_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
def info(model_dir: Path) -> None:
    """Describe the model in MODEL_DIR without loading its weights."""
    from constrain.model import ExLlamaV2Config

    config = ExLlamaV2Config(str(model_dir))
    tensors = list(_tensors(config.tensor_files))
    table = Table(show_header=False)
    for name, value in {
        "architecture": config.architecture,
        "parameters": f"{sum(size for _, size in tensors):,}",
        "tensors": ", ".join(f"{count} × {kind}" for kind, count in Counter(kind for kind, _ in tensors).most_common()),
        "layers": str(config.num_hidden_layers),
        "hidden size": f"{config.hidden_size} ({config.intermediate_size} in the MLP)",
        "heads": f"{config.num_attention_heads} ({config.num_key_value_heads} for keys and values)",
        "vocabulary": f"{config.vocab_size:,}",
        "context": f"{config.max_seq_len:,} tokens",
    }.items():
        table.add_row(name, value)
    Console().print(table)


def _tensors(files: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the type and the number of elements of every tensor."""
    for file in files:
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping, and not iterable
                tensor = tensors.get_slice(name)
                yield tensor.get_dtype(), math.prod(tensor.get_shape())
