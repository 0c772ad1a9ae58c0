"""A run in one call: a model extracts from documents what is missing in a file."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from constrain.arguments import check_type, refused
from constrain.errors import RunError
from constrain.extract.target import Target
from constrain.runs.journal import Journal
from constrain.runs.key import model_identity, settings_key
from constrain.runs.lines import Line
from constrain.runs.missing import Missing
from constrain.runs.model import LazyModel
from constrain.runs.run import Progress, Run
from constrain.runs.schema import check_schema
from constrain.runs.stream import Stream
from constrain.runs.table import SUFFIXES, Table
from constrain.runs.work import Input

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from constrain.completion import Failure
    from constrain.documents import PartKind
    from constrain.extract import Extraction, ExtractOptions

#: The text whose prompt stands for the form of all prompts.
_PROBE = "text"
#: Options that decide when a record is there and whether, but not what it is; and the task, which is in the prompt.
_NOT_IN_KEYS = frozenset({"task", "max_new_tokens", "timeout", "priority"})
#: Options that make sampling random.
_SAMPLING = ("temperature", "top_p", "top_k", "min_p")
#: Suffixes of formats that the records cannot be written in, though the user would expect it.
_OTHER_FORMATS = frozenset(
    ".xlsx .xlsm .xls .ods .tsv .xml .yaml .yml .toml .html .htm .md .pdf .docx .db .sqlite .sqlite3 .duckdb .feather "
    ".arrow .avro .orc .gz .bz2 .xz .zst .zip".split()
)


def run_extraction(
    llm: Any | LazyModel,
    schema: Any,
    documents: Iterable[Input],
    output: str | Path | Journal | Stream,
    *,
    each: PartKind | None = None,
    retry_failed: bool = False,
    stop: Callable[[], bool] = lambda: False,
    on_line: Callable[[Progress, Line | None], None] = lambda progress, line: None,
    **options: Unpack[ExtractOptions],
) -> Progress:
    """Extract a record from each document into a file, except for those whose records are there.

    Args:
        llm: a :class:`constrain.LLM`, or a :class:`LazyModel`, which is loaded only if a record is missing.
        schema: schema of the records, as for :meth:`constrain.LLM.extract`.
        documents: texts, documents, or sources such as those of :func:`constrain.documents.inputs`. They are read on
            a thread of their own, a few ahead of the request slots. Without a source, equal texts are one document.
        output: a file, see :func:`open_output`; or what that function returns, which is not closed then.
        each: extract a record from each page, paragraph or row of the documents instead.
        retry_failed: try documents again that failed in an earlier run.
        stop: called before each document; once it returns true, only those that have started are finished.
        on_line: called after each document with the progress and its line, or ``None`` if it was skipped.
        options: as for :meth:`constrain.LLM.extract`; filters are :class:`constrain.filters.NamedFilter`, so that later
            runs can compare them.

    Returns:
        What was done.

    Raises:
        SchemaError: the schema is not valid, or cannot be enforced.
        ArgumentError: an option is wrong, or has no JSON form.
        OutputInUse: another run writes the output.
        RunError: the output cannot be written, or too many documents in a row failed unexpectedly. The output has what
            was done until then.
    """
    from constrain.filters.vocabularies import vocabulary_of

    if isinstance(documents, (str, bytes, Mapping)) or not isinstance(documents, Iterable):
        raise refused("documents", documents, "a list of documents, or something else to iterate over")
    check_type("output", output, (str, Path, Journal, Stream), "a path, or what open_output returns")
    target = Target.of(schema)
    model = llm if isinstance(llm, LazyModel) else LazyModel.of(llm)
    check_schema(target.output_schema, vocabulary_of(model.tokenizer))
    settings = settings_of(model, target, options)

    def extract(missing: Missing) -> Generator[Extraction[Any] | Failure, None, None]:
        results: Generator[Extraction[Any] | Failure, None, None] = model.load().extract_many(
            target, missing, ordered=False, **options
        )
        return results

    with _opened(output) as lines:
        run = Run(extract, target, settings, lines, each=each, retry_failed=retry_failed, stop=stop, on_line=on_line)
        return run.extract(documents)


def open_output(path: str | Path) -> Journal:
    """Open a file for the lines of a run; its suffix is the format.

    Args:
        path: ``.csv`` or ``.parquet`` for a table, ``.json`` for an array, with a journal in JSON Lines beside it;
            otherwise JSON Lines.

    Raises:
        OutputInUse: another run writes the file.
        RunError: the suffix is that of another format, or the file cannot be read or written, or is not the output of
            a run.
    """
    if (suffix := Path(path).suffix.lower()) in _OTHER_FORMATS:
        formats = ".csv (which spreadsheets open), .parquet, .json or .jsonl"
        raise RunError(f"{path}: no records can be written as {suffix}; give a file that ends in {formats}")
    return Table(path) if Path(path).suffix.lower() in SUFFIXES else Journal(path)


def settings_of(model: LazyModel, target: Target[Any], options: ExtractOptions) -> str:
    """Return the beginning of the keys of what a model extracts; errors as for :func:`settings_key`.

    ``max_new_tokens`` is not part of it: so documents that failed with too few tokens can be tried with more, and the
    records of the others are kept.
    """
    from constrain.extract.options import ExtractionOptions

    checked = ExtractionOptions.of(target, options)
    changed = {
        field.name: value
        for field in fields(checked)
        if field.name not in _NOT_IN_KEYS and (value := getattr(checked, field.name)) not in (field.default, [])
    }
    if checked.settings is None and not any(getattr(checked, name) for name in _SAMPLING):
        changed.pop("seed", None)  # greedy sampling does not depend on the seed
    if model.calibration is not None:
        changed["calibration"] = model.calibration.to_json()
    # The prompt has instructions and examples. It has no chat template, which may tell the date; the model has that.
    prompt = model.form.text(checked.task, _PROBE)
    return settings_key(target.output_schema, model_identity(model.folder), prompt, changed)


def _opened(output: str | Path | Journal | Stream) -> AbstractContextManager[Journal | Stream]:
    return open_output(output) if isinstance(output, (str, Path)) else nullcontext(output)
