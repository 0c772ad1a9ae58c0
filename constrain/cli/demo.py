"""``constrain demo``: show extracted records next to their documents."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from tqdm import tqdm

if TYPE_CHECKING:
    from constrain import LLM
    from constrain.completion import PendingResult
    from constrain.demo import DemoDocument
    from constrain.extract import Extraction


@click.command()
def demo() -> None:
    """Extract records from bundled documents.

    The built-in model does it, and the records are shown beside their documents.
    """
    from constrain.completion import Failure, run_many
    from constrain.demo import demo_documents
    from constrain.llm import load

    llm = load()
    table = Table("document", "record", show_lines=True, expand=True)
    tokens, begin = 0, time.perf_counter()
    documents = demo_documents()
    results = run_many(llm.runtime, partial(_submit, llm), documents)
    for document, result in zip(tqdm(documents, unit="document", leave=False, disable=None), results, strict=True):
        if isinstance(result, Failure):
            raise result.error
        tokens += len(result.tokens)
        record = json.dumps(result.json, indent=2, ensure_ascii=False)
        table.add_row(Text(document.text), Syntax(record, "json", background_color="default", word_wrap=True))
    seconds = time.perf_counter() - begin
    Console().print(table)
    click.echo(f"{table.row_count} valid records, {tokens} tokens, {seconds:.1f} s")


def _submit(llm: LLM, number: int, document: DemoDocument) -> PendingResult[Extraction[Any]]:
    from constrain.extract import Target

    return llm.extractor.submitter(Target.of(document.schema))(number, document.text)
