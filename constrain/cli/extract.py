"""``constrain extract``: a record from each document, in a file that a later run continues."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from constrain.cli.counted import counted
from constrain.cli.heap import freeze_heap
from constrain.cli.interrupt import Interrupt
from constrain.cli.options import (
    GpuOptions,
    OutputFile,
    SchemaParam,
    encoding_option,
    filters_option,
    gpu_options,
    max_new_tokens_option,
    model_option,
    prompt_options,
    seed_option,
)
from constrain.cli.run_report import RunReport
from constrain.cli.schema import warn_of_mistakes
from constrain.errors import RunError

if TYPE_CHECKING:
    from constrain import LLM
    from constrain.documents import PartKind, Source
    from constrain.extract import ExtractOptions, Target
    from constrain.runs import Journal, LazyModel, Progress, Stream

#: Exit code after Ctrl-C, as of other programs.
_INTERRUPTED = 130
_NOTICE = "Ctrl-C: the documents that have started will be finished; again: stop at once"


@click.command()
@click.option("--schema", "target", type=SchemaParam(), required=True, help="What to extract: JSON Schema or type.")
@click.argument("files", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="File for the records: .csv, .parquet, .json, or else JSON Lines.  [default: JSON Lines on standard output]",
)
@click.option("--column", help="Column of the texts in tables (CSV, TSV, JSON Lines, Parquet); each row is a document.")
@click.option("--id-column", "ids", help="Column that names the rows.  [default: their numbers]")
@encoding_option
@click.option(
    "--each", type=click.Choice(["page", "paragraph", "row"]), help="Extract a record from each one of these."
)
@click.option("--limit", type=click.IntRange(min=1), help="Take only the first N documents.")
@click.option("--sample", type=click.IntRange(min=1), help="Take N documents at random, other ones for each --seed.")
@click.option("--retry-failed", is_flag=True, help="Try documents again that failed in an earlier run.")
@model_option
@gpu_options
@max_new_tokens_option
@prompt_options
@filters_option
@click.option(
    "--confidence",
    type=click.Choice(["yes", "no", "exact"]),
    default="yes",
    show_default=True,
    callback=lambda ctx, param, value: {"yes": True, "no": False}.get(value, value),
    help="Whether to tell how sure the model was of each value; exact: of all alternatives, by more requests.",
)
@click.option(
    "--calibration",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Calibration of the probabilities, as constrain calibrate writes it.",
)
@click.option("--temperature", type=click.FloatRange(min=0), help="0 takes the most likely tokens.  [default: 0]")
@seed_option
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Most documents at a time.  [default: as many as there is memory for]"
)
@click.option("--ray", "address", metavar="ADDRESS", help="Extract on a Ray cluster: its address, auto, or local.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Workers of --ray, each with a model.  [default: one for each GPU, or else for each machine]",
)
@click.pass_context
def extract(
    ctx: click.Context,
    /,
    target: Target[Any],
    files: tuple[str, ...],
    output: Path | None,
    column: str | None,
    ids: str | None,
    encoding: str | None,
    each: PartKind | None,
    limit: int | None,
    sample: int | None,
    retry_failed: bool,
    model_dir: Path | None,
    jobs: int | None,
    address: str | None,
    workers: int | None,
    calibration: Path | None,
    gpus: GpuOptions,
    **options: Any,
) -> None:
    """Extract one record from each of FILES.

    FILES are texts, HTML, PDF, DOCX, e-mails, folders of them, patterns, or tables; - is standard input. Models with a
    vision tower read images too, but not those in folders. Several files are worked on at a time. A line of JSON is
    written for each as soon as it is done: {"key": ..., "source": FILE, "record": RECORD}, or with "error" instead of
    "record" if it failed; the exit code is then 1.

    With -o, a later run goes on where an earlier one ended, in whatever way it ended: it extracts what is missing in
    the file, and only that. A record is missing if the document, the schema, the model or a setting has changed, except
    for --max-new-tokens. Documents that failed count as done unless --retry-failed is given.

    Ctrl-C ends a run after the documents in progress, and a second one at once. The exit code is then 130.
    """
    from constrain.documents import inputs
    from constrain.runs import run_extraction

    _check_workers(address, workers, gpus)
    if retry_failed and output is None:
        raise click.UsageError("--retry-failed needs -o: without a file there are no earlier failures")
    listed = partial(inputs, files, column=column, ids=ids, encoding=encoding, leave_out=_own(output))
    documents, total = _documents(listed, limit, sample, options["seed"])
    if not total:
        click.echo("warning: there are no documents", err=True)
    if ids and not column:
        raise click.UsageError("--id-column names the rows of tables that are read by --column")
    if column is None:
        _warn_of_tables(files)
    _warn_of_others(files, column, output)
    _check(target, model_dir)
    model = _model(model_dir, jobs, calibration, gpus)
    if address is not None:
        model = _on_ray(model, address, workers, model_dir, jobs)
    run = partial(run_extraction, model, target, documents, each=each, retry_failed=retry_failed)
    try:
        progress = _run(partial(run, **_extract_options(**options)), output, None if each else total, each)
    except KeyboardInterrupt:
        ctx.exit(_INTERRUPTED)
    ctx.exit(_INTERRUPTED if progress.is_stopped else bool(progress.all_failures))


def _run(run: Callable[..., Progress], output: Path | None, total: int | None, each: PartKind | None) -> Progress:
    """Run an extraction, with a report on its progress; Ctrl-C ends it."""
    from constrain.extract.mistakes import SchemaWarning

    with _opened(output) as lines, warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)  # the check of the schema has said it
        try:
            with RunReport(total, output, each or "document") as report, Interrupt(_NOTICE) as interrupt:
                return run(lines, stop=lambda: interrupt.requested, on_line=report.update)
        except RunError as error:
            _discard_if_broken(error)
            raise


def _documents(
    listed: Callable[[], Iterable[Source]], limit: int | None, number: int | None, seed: int | None
) -> tuple[Iterable[Source], int]:
    """Return the documents, still unread, and their number."""
    from constrain.runs import sample

    if limit and number:
        raise click.UsageError("--limit and --sample exclude each other")
    if number:
        chosen = sample(listed(), number, seed or 0)
        return chosen, len(chosen)
    total = sum(1 for _ in listed())
    return islice(listed(), limit), min(total, limit or total)


def _warn_of_tables(files: Sequence[str]) -> None:
    from constrain.documents.tables import is_table

    for file in filter(is_table, files):
        click.echo(f"warning: {file} is one document; with --column NAME, each of its rows is one", err=True)


def _warn_of_others(files: Sequence[str], column: str | None, output: Path | None) -> None:
    """Say how many files of folders are left out, by suffix."""
    from constrain.documents.inputs import left_out

    found = left_out(files, column=column, leave_out=_own(output))
    if found:
        kinds = ", ".join(f"{number:,} {suffix or 'without suffix'}" for suffix, number in found.most_common())
        click.echo(f"warning: {counted(found.total(), 'file')} of folders left out for the suffix: {kinds}", err=True)


def _own(output: Path | None) -> tuple[Path, ...]:
    """Return the files that a run writes, and the pages on which they are reviewed."""
    from constrain.review.page import is_page
    from constrain.runs import journal_of

    if output is None:
        return ()
    written = (output, journal_of(output))
    return (*written, *filter(is_page, (path.with_suffix(".html") for path in written)))


def _opened(output: Path | None) -> Journal | Stream:
    from constrain.runs import Stream, open_output

    if output is not None:
        return open_output(output)
    if sys.stdout is None:
        raise click.UsageError("standard output is closed: name a file with -o")
    return Stream(sys.stdout.buffer)


def _check(target: Target[Any], model_dir: Path | None) -> None:
    """Compile the schema, which takes less time than to load the model, and warn of what looks like a mistake."""
    from constrain.demo import model_dir as built_in
    from constrain.engine import Vocabulary
    from constrain.runs import check_schema

    warn_of_mistakes(check_schema(target.schema, Vocabulary.from_pretrained(model_dir or built_in())))


def _check_workers(address: str | None, workers: int | None, gpus: GpuOptions) -> None:
    if workers is not None and address is None:
        raise click.UsageError("--workers needs --ray")
    if address is not None and any(gpus.values()):
        raise click.UsageError("a worker of --ray has one GPU: --gpu-split and --tensor-parallel are for a run without")


def _model(model_dir: Path | None, jobs: int | None, calibration_file: Path | None, gpus: GpuOptions) -> LazyModel:
    from constrain.demo import model_dir as built_in
    from constrain.extract import Calibration
    from constrain.runs import LazyModel

    calibration, context = Calibration.of(calibration_file), click.get_current_context()

    def load() -> LLM:
        from constrain.llm import load

        llm = load(model_dir, max_batch_size=jobs, calibration=calibration, images=None, **gpus)
        freeze_heap(context)
        return llm

    return LazyModel.open(model_dir or built_in(), load, calibration)


def _on_ray(model: LazyModel, address: str, workers: int | None, model_dir: Path | None, jobs: int | None) -> LazyModel:
    try:
        from constrain.integrations.ray import Workers
    except ImportError as error:
        raise click.UsageError(str(error)) from error
    folder = None if model_dir is None else model_dir.resolve()
    calibration = model.calibration
    return replace(
        model,
        load=lambda: Workers(address, folder, number=workers, max_batch_size=jobs, calibration=calibration),
    )


def _extract_options(temperature: float | None, **options: Any) -> ExtractOptions:
    """Return the options of the extraction; without a temperature, sampling is greedy."""
    return {**options, "temperature": temperature} if temperature else {**options}  # type: ignore[typeddict-item]


def _discard_if_broken(error: RunError) -> None:
    """Keep Python from writing the rest of its buffer at the end to a pipe that nobody reads."""
    if isinstance(error.__cause__, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
