"""``constrain demo``: records beside the documents they were extracted from."""

from __future__ import annotations

import json
import time

import click
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from tqdm import tqdm


@click.command()
def demo() -> None:
    """Extract records from bundled documents.

    The built-in model does it, and the records are shown beside their documents.
    """
    from constrain.demo import demo_documents
    from constrain.llm import load

    llm = load()
    table = Table("document", "record", show_lines=True, expand=True)
    tokens, begin = 0, time.perf_counter()
    for document in tqdm(demo_documents(), unit="document", leave=False, disable=None):
        result = llm.extract(document.schema, document.text)
        tokens += len(result.tokens)
        record = json.dumps(result.json, indent=2, ensure_ascii=False)
        table.add_row(Text(document.text), Syntax(record, "json", background_color="default", word_wrap=True))
    seconds = time.perf_counter() - begin
    Console().print(table)
    click.echo(f"{table.row_count} valid records, {tokens} tokens, {seconds:.1f} s")
