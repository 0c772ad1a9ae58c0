"""``constrain check-schema``: report which keywords of a schema are enforced, and where a document violates it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
from rich.markup import escape
from rich.table import Column, Table

from constrain.cli.options import SchemaParam, model_option
from constrain.cli.schema import warn_of_mistakes
from constrain.cli.tables import table_console
from constrain.engine.pointers import pointer
from constrain.errors import GrammarError

if TYPE_CHECKING:
    from constrain.engine import Report, Vocabulary
    from constrain.extract import Target

COLOURS = {"enforced": "green", "narrowed": "yellow", "ignored": "red"}


class Row(NamedTuple):
    """A keyword of the schema, its location, and whether it is enforced."""

    document: str
    pointer: str
    keyword: str
    status: str
    note: str


@click.command("check-schema")
@click.argument("target", metavar="SCHEMA", type=SchemaParam())
@click.option(
    "--text",
    type=click.File(encoding="utf-8"),
    help="Say where this document departs from SCHEMA; - reads standard input.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the findings as JSON.")
@model_option
@click.pass_context
def check_schema(
    ctx: click.Context, target: Target[Any], text: IO[str] | None, as_json: bool, model_dir: Path | None
) -> None:
    """Say what of SCHEMA is enforced.

    SCHEMA is a file with a JSON Schema, or a Python type as module:Type. Lists the keywords of every node: whether they
    are enforced, more strictly than written or not at all, and why. Keywords that look misspelled are warned of. If the
    schema cannot be enforced exactly, says where and why, and exits with code 1.

    With --text, says instead whether a document would be let through, and if not, where it goes wrong and what was
    expected there; the exit code is then 1. Quotes may be any strings there.
    """
    from constrain.demo import model_dir as built_in
    from constrain.engine import Vocabulary
    from constrain.runs import check_schema as checked

    if text and as_json:
        raise click.UsageError("--text and --json exclude each other")
    vocabulary = Vocabulary.from_pretrained(model_dir or built_in())
    try:
        report = checked(target.schema, vocabulary)
    except GrammarError as error:
        if as_json:
            click.echo(json.dumps({"supported": False, "error": _described(error)}, indent=2))
        else:
            click.echo(f"not supported: {error}", err=True)
        ctx.exit(1)
    if text:
        _explain(ctx, target, vocabulary, text)
    rows = _rows(report, target.schema)
    if as_json:
        click.echo(json.dumps({"supported": True, "keywords": [row._asdict() for row in rows]}, indent=2))
    else:
        _print(rows)
        warn_of_mistakes(report)


def _explain(ctx: click.Context, target: Target[Any], vocabulary: Vocabulary, text: IO[str]) -> None:
    from constrain.engine import compile_json_schema
    from constrain.extract.evidence import without_verbatim

    try:
        document = text.read().rstrip("\n")  # the final newline of a file is not part of the document
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{text.name} is not UTF-8 text: {error}") from error
    explanation = compile_json_schema(without_verbatim(target.schema), vocabulary).explain(document)
    click.echo(explanation)
    ctx.exit(0 if explanation.accepted else 1)


def _described(error: GrammarError) -> dict[str, Any]:
    """Return an error as JSON: its type, message and location."""
    attributes = {name: value for name, value in vars(error).items() if value not in (None, "")}
    return {"type": type(error).__name__, "message": str(error), **attributes}


def _rows(report: Report, schema: Any) -> list[Row]:
    """Return the findings in schema order, those about other documents last."""
    rows = [
        Row(entry.document, entry.pointer, entry.keyword, status, entry.note)
        for status, entries in vars(report).items()
        for entry in entries
    ]
    position = {place: i for i, place in enumerate(_pointers(schema))}
    return sorted(rows, key=lambda row: (row.document, position.get(row.pointer, 0)))


def _pointers(value: Any, *path: str | int) -> Iterator[str]:
    """Yield the JSON pointers to a value and all values in it, in document order."""
    yield pointer(path)
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from _pointers(member, *path, key)


def _print(rows: list[Row]) -> None:
    table = Table(Column("where", overflow="fold"), "keyword", "", "note")
    for (document, place), node in groupby(rows, key=lambda row: row[:2]):
        where = f"{document}#{place}"
        for row in node:
            status = f"[{COLOURS[row.status]}]{row.status}[/]"
            table.add_row(escape(where), escape(row.keyword), status, escape(row.note))
            where = ""
    table_console().print(table)
    counts = Counter(row.status for row in rows)
    click.echo(", ".join(f"{counts[status]} {status}" for status in COLOURS))
