"""``constrain extract``: extract one record per document, as JSON Lines."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from constrain.cli.options import (
    OutputFile,
    SchemaParam,
    max_new_tokens_option,
    model_option,
    prompt_options,
    seed_option,
)
from constrain.errors import ConstrainError

if TYPE_CHECKING:
    from constrain.completion import Pending
    from constrain.extract import Extraction, Target


@click.command()
@click.option("--schema", "target", type=SchemaParam(), required=True, help="What to extract: JSON Schema or type.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="File to append the records to.  [default: standard output]",
)
@model_option
@max_new_tokens_option
@prompt_options
@seed_option
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Most files at a time.  [default: as many as there is memory for]"
)
@click.pass_context
def extract(
    ctx: click.Context,
    /,
    target: Target[Any],
    files: tuple[Path, ...],
    output: Path | None,
    model_dir: Path | None,
    jobs: int | None,
    **options: Any,
) -> None:
    """Extract one record from each of FILES.

    FILES are texts in UTF-8; - is standard input. Several are worked on at a time. Writes one line of JSON for each, in
    the order of FILES: {"source": FILE, "record": RECORD}, as soon as it is there, so that nothing is lost if a later
    file fails or the run is stopped. A file that fails is reported on standard error, and the others go on; the exit
    code is then 1.
    """
    from constrain.completion import Failure, run_many
    from constrain.llm import load

    llm = load(model_dir, max_batch_size=jobs)
    submit_text = llm.extractor.submitter(target, **options)

    def submit(number: int, file: Path) -> Pending[Extraction[Any]]:
        text = click.open_file(str(file), encoding="utf-8").read()
        return submit_text(number, text)

    failed = 0
    with ExitStack() as stack:
        sink = stack.enter_context(output.open("a", encoding="utf-8")) if output else sys.stdout
        results = run_many(llm.runtime, submit, files)
        for file, result in zip(tqdm(files, unit="file", disable=None), results, strict=True):
            if isinstance(result, Failure):
                failed += 1
                _report(file, result.error)
                continue
            print(json.dumps({"source": str(file), "record": result.json}, ensure_ascii=False), file=sink, flush=True)
    if failed:
        click.echo(f"{failed} of {len(files)} files failed", err=True)
        ctx.exit(1)


def _report(file: Path, error: Exception) -> None:
    """Print the error of a file."""
    if not isinstance(error, (ConstrainError, OSError, UnicodeDecodeError)):
        raise error
    tqdm.write(f"{file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
