"""``constrain evaluate``: how records compare with gold."""

from __future__ import annotations

import json
from pathlib import Path

import click

from constrain.cli.options import OutputFile, keep, warn_if_empty
from constrain.cli.tables import table_console

RECORDS = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("records", type=RECORDS)
@click.option("--gold", required=True, type=RECORDS, help="The records that are right, as lines of JSON.")
@click.option("--ignore-case", is_flag=True, help="Take strings for the same that differ only in case.")
@click.option("--json", "as_json", is_flag=True, help="Write the evaluation as JSON.")
@click.option("--html", "page", type=OutputFile(), help="Also write a page with plots and all differences.")
def evaluate(records: Path, gold: Path, ignore_case: bool, as_json: bool, page: Path | None) -> None:
    """Compare RECORDS, the JSON Lines of constrain extract, with gold.

    Lines of gold are {"source": FILE, "record": RECORD}, as the page of constrain review exports them. Writes the
    precision, recall and F1 of each field, how often which value was taken for which, and, if the records have them,
    how good spans and probabilities are.

    Numbers are compared by value, dates and times by what they name, and other strings but for white space. Items of
    lists are compared with those most like them.
    """
    from constrain.evaluation import evaluate as evaluated
    from constrain.evaluation.page import write_page
    from constrain.evaluation.tables import print_tables
    from constrain.runs import read_lines

    keep(page, records, gold)
    lines = read_lines(records)
    warn_if_empty(records, lines)
    evaluation = evaluated(lines, read_lines(gold), ignore_case=ignore_case)
    if as_json:
        text = json.dumps(evaluation.to_json(), indent=2, ensure_ascii=False)
        click.echo(text.encode("utf-8", "backslashreplace").decode())  # the name of a file need not be text
    else:
        print_tables(evaluation, table_console())
    if page:
        write_page(evaluation, page, title=records.name)
