"""``constrain review``: a page on which records are looked at beside their sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from constrain.cli.counted import counted
from constrain.cli.options import OutputFile, encoding_option, keep

if TYPE_CHECKING:
    from constrain.review import Review

_MEGABYTE = 1_000_000


@click.command()
@click.argument("records", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=OutputFile(), help="The page.  [default: RECORDS with the suffix .html]")
@click.option(
    "--max-size",
    type=click.FloatRange(min=1),
    default=40,
    show_default=True,
    help="Most megabytes of the page. What is beyond is left out: images of pages, then texts.",
)
@encoding_option
def review(records: Path, output: Path | None, max_size: float, encoding: str | None) -> None:
    """Write a page to review RECORDS, the JSON Lines of constrain extract.

    The page is one HTML file that needs no network. It shows the documents, the least sure first, with the values of
    their records highlighted; a PDF shows its pages. Values can be corrected there, and exported as a gold file.

    The documents are read again from where they were, so start it in the folder of the extraction.
    """
    from constrain.review import write_review

    path = output or records.with_suffix(".html")
    keep(path, records)
    written = write_review(records, path, encoding=encoding, max_bytes=int(max_size * _MEGABYTE), show_progress=True)
    size = path.stat().st_size / _MEGABYTE
    documents, failures = counted(written.documents, "document"), counted(written.failures, "failure")
    click.echo(f"{path}: {documents}, {failures}, {size:.1f} MB")
    for warning in _warnings(written):
        click.echo(warning, err=True)


def _warnings(review: Review) -> list[str]:
    found = []
    if not review.documents:
        found.append("warning: there are no records to review")
    if review.without_text:
        found.append(f"{counted(review.without_text, 'document')} without text: the page says why")
    if review.changed:
        found.append(f"{counted(review.changed, 'document')} without highlights: the sources have changed")
    if review.pages_as_text:
        found.append(f"{review.pages_as_text:,} pages as text, not as images: there is room for more with --max-size")
    return found
