"""``constrain extract``: documents in, one JSON record a line out."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from constrain.cli.options import OutputFile, SchemaParam, max_new_tokens_option, model_option, seed_option
from constrain.errors import ConstrainError

if TYPE_CHECKING:
    from constrain.extract import Target


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
@seed_option
@click.pass_context
def extract(
    ctx: click.Context,
    target: Target[Any],
    files: tuple[Path, ...],
    output: Path | None,
    model_dir: Path | None,
    max_new_tokens: int,
    seed: int | None,
) -> None:
    """Extract one record from each of FILES.

    FILES are texts in UTF-8; - is standard input. Writes one line of JSON for each: {"source": FILE, "record": RECORD},
    at once, so that nothing is lost if a later file fails or the run is stopped. A file that fails is reported on
    standard error, and the others go on; the exit code is then 1.
    """
    from constrain.llm import load

    llm = load(model_dir)
    failed = 0
    with ExitStack() as stack:
        sink = stack.enter_context(output.open("a", encoding="utf-8")) if output else sys.stdout
        for file in tqdm(files, unit="file", disable=None):
            try:
                text = click.open_file(str(file), encoding="utf-8").read()
                record = llm.extract(target, text, max_new_tokens=max_new_tokens, seed=seed).json
            except (ConstrainError, OSError, UnicodeDecodeError) as error:
                failed += 1
                tqdm.write(f"{file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
                continue
            print(json.dumps({"source": str(file), "record": record}, ensure_ascii=False), file=sink, flush=True)
    if failed:
        click.echo(f"{failed} of {len(files)} files failed", err=True)
        ctx.exit(1)
