"""``constrain demo``: show extracted records next to their documents."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from tqdm import tqdm

if TYPE_CHECKING:
    from constrain import LLM
    from constrain.completion import Failure, PendingResult
    from constrain.demo import DemoDocument
    from constrain.extract import Extraction

#: The records, and the page to review them.
_FILES = ("records.jsonl", "review.html")
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


@click.command()
@click.option(
    "-o",
    "--output",
    default="constrain-demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the records and the page to review them.",
)
def demo(output: Path) -> None:
    """Extract records from bundled documents.

    The built-in model does it. The records are shown beside their documents, in which the quoted values are
    highlighted, and written to a folder together with a page to review them in a browser.
    """
    from constrain.completion import run_many
    from constrain.demo import demo_documents
    from constrain.llm import load

    _make(output)
    llm = load()
    documents, begin = demo_documents(), time.perf_counter()
    results = run_many(llm.runtime, partial(_submit, llm), documents)
    extractions = [_extraction(each) for each in tqdm(results, "documents", len(documents), leave=False, disable=None)]
    seconds = time.perf_counter() - begin
    Console().print(_table(extractions))
    tokens = sum(len(each.tokens) for each in extractions)
    click.echo(f"{len(extractions)} valid records, {tokens} tokens, {seconds:.1f} s")
    click.echo(f"Review them in a browser: {_write(output, extractions)}")


def _make(folder: Path) -> None:
    """Make the folder for the output, and see that files can be written there, before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            with (folder / name).open("ab"):
                pass
    except OSError as error:
        raise click.ClickException(f"{folder} cannot be written: {(error.strerror or str(error)).lower()}") from error


def _submit(llm: LLM, number: int, document: DemoDocument) -> PendingResult[Extraction[Any]]:
    from constrain.documents import Document
    from constrain.extract import Target

    return llm.extractor.submitter(Target.of(document.schema))(number, Document(document.text, str(document.path)))


def _extraction(result: Extraction[Any] | Failure) -> Extraction[Any]:
    if result.error is not None:
        raise result.error
    return result


def _table(extractions: Iterable[Extraction[Any]]) -> Table:
    table = Table("document", "record", show_lines=True, expand=True)
    for each in extractions:
        record = json.dumps(each.json, indent=2, ensure_ascii=False)
        table.add_row(_highlighted(each), Syntax(record, "json", background_color="default", word_wrap=True))
    return table


def _highlighted(extraction: Extraction[Any]) -> Text:
    """Return the document with the spans of the record in colours, one for each field."""
    text = Text(extraction.document.text)
    fields: dict[str, int] = {}
    for pointer, span in extraction.spans.items():
        field = "/".join(part for part in pointer.split("/") if not part.isdecimal())
        colour = _COLOURS[fields.setdefault(field, len(fields)) % len(_COLOURS)]
        text.stylize(f"bold {colour}", span.start, span.end)
    return text


def _write(folder: Path, extractions: Iterable[Extraction[Any]]) -> Path:
    """Write the records and the page to review them; return the path of the page."""
    from constrain.review import write_review
    from constrain.runs import encode_line, record_line, work_key
    from constrain.runs.key import SETTINGS_DIGITS

    records, page = (folder / name for name in _FILES)
    keys = (
        (work_key("0" * SETTINGS_DIGITS, each.document.source, {}, each.document.text), each) for each in extractions
    )
    records.write_bytes(b"".join(encode_line(record_line(key, each, each.json, {})) for key, each in keys))
    write_review(records, page)
    return page
