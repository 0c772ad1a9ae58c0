"""Messages of a run on standard error: its progress, its failures, and a summary at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

from constrain.cli.counted import counted

if TYPE_CHECKING:
    from typing_extensions import Self

    from constrain.runs import Line, Progress


class RunReport:
    """Shows a progress bar on a terminal while it is entered, a line for each failure, and a summary at the end."""

    def __init__(self, total: int | None, output: Path | None, noun: str = "document") -> None:
        """
        Args:
            total: number of documents, if it is known.
            output: the file that a later run can continue.
            noun: what has a record: a document, or a kind of part.
        """
        self._progress: Progress | None = None
        self._output, self._noun = output, noun
        self._bar = tqdm(total=total, unit=f" {noun}s", disable=None, dynamic_ncols=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.close()
        if self._progress is not None:
            is_stopped = self._progress.is_stopped or kind is not None
            for line in _summary(self._progress, self._noun, self._output if is_stopped else None):
                click.echo(line, err=True)
            if self._progress.of_other_settings:
                click.echo(_others(self._progress.of_other_settings, self._output), err=True)

    def update(self, progress: Progress, line: Line | None) -> None:
        """Take notice of a document that is finished; ``line`` is ``None`` if it was skipped."""
        self._progress = progress
        if line is not None and "error" in line:
            tqdm.write(f"{line['source']}: {line['error']['message']}", file=sys.stderr)
        elif line is not None and (pages := line.get("pages_without_text")):
            images = f"{counted(len(pages), 'page')} without text, only images: {', '.join(map(str, pages))}"
            tqdm.write(f"warning: {line['source']} has {images}", file=sys.stderr)
        self._bar.set_postfix_str(f"{_rate(progress)}, {progress.all_failures:,} failed", refresh=False)
        self._bar.update(progress.documents - self._bar.n)


def _summary(progress: Progress, noun: str, to_continue: Path | None) -> Iterator[str]:
    """Yield a summary: counts, time, and how to go on with a run that was stopped."""
    documents = counted(progress.documents, noun)
    present = f"; {progress.present:,} there before" if progress.present else ""
    yield f"{counted(progress.records, 'record')} of {documents} in {progress.seconds:,.1f} s{present}"
    if progress.records:
        prompts = f"{progress.prompt_tokens:,} of prompts ({progress.cached_tokens:,} of them cached)"
        yield f"tokens: {prompts}, {progress.output_tokens:,} of records, {_rate(progress)}"
    if progress.all_failures:
        again = f"; --retry-failed tries {progress.failed_before:,} of them again" if progress.failed_before else ""
        yield f"{progress.all_failures:,} of {documents} failed{again}"
    if to_continue is not None:
        yield f"stopped: {to_continue} has {documents}, and the same command goes on with the others"


def _others(count: int, output: Path | None) -> str:
    lines = counted(count, "line")
    return f"{output} has {lines} of another schema, model or setting, too; for a file without them, choose another"


def _rate(progress: Progress) -> str:
    return f"{progress.output_tokens / max(progress.seconds, 1e-3):,.0f} tokens/s"
