"""Options shared by several commands, and their parameter types."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sized
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from constrain.arguments import type_with_article

if TYPE_CHECKING:
    from constrain.extract import Target
    from constrain.filters import NamedFilter

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)

model_option = click.option(
    "--model", "model_dir", type=FOLDER, help="Folder of a model.  [default: the built-in model]"
)
max_new_tokens_option = click.option(
    "--max-new-tokens",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="Most tokens to write for one answer.",
)
encoding_option = click.option(
    "--encoding",
    help="Encoding of texts, pages and tables, such as cp1252.  [default: by their mark, UTF-8, or detected]",
)
seed_option = click.option("--seed", type=int, help="Seed of the sample, to get the same answer again.")


class GigabytesParam(click.ParamType[Any]):
    """Gigabytes for each GPU, separated by commas."""

    name = "GB,GB,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        try:
            return [float(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not numbers separated by commas", param, ctx)


class GpuOptions(TypedDict):
    """Arguments of :func:`constrain.load` that split a model over several GPUs."""

    gpu_split: list[float] | None
    tensor_parallel: bool


def gpu_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that split a model over several GPUs; the command gets them as ``gpus``."""

    @click.option("--gpu-split", type=GigabytesParam(), help="Split the model by layers: gigabytes for each GPU.")
    @click.option("--tensor-parallel", is_flag=True, help="Split every layer over the GPUs, in place of whole layers.")
    @wraps(command)
    def with_gpus(*args: Any, gpu_split: list[float] | None, tensor_parallel: bool, **others: Any) -> None:
        command(*args, gpus=GpuOptions(gpu_split=gpu_split, tensor_parallel=tensor_parallel), **others)

    return with_gpus


class OutputFile(click.Path):
    """A file to write, whose folder must exist, so that a wrong path fails before any work is done."""

    name = "FILE"

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(str(super().convert(value, param, ctx)))
        if not path.name:
            self.fail(f"{str(value)!r} names no file", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{str(path)!r}: there is no folder {str(path.parent)!r}", param, ctx)
        return path


def keep(output: Path | None, *inputs: Path) -> None:
    """Raise if an output would replace one of the files that a command reads."""
    for path in inputs:
        if output is not None and output.resolve() == path.resolve():
            raise click.UsageError(f"{output} would be replaced, but is read: choose another file for the output")


def warn_if_empty(path: Path, lines: Sized) -> None:
    """Say on standard error that a file has no records."""
    if not len(lines):
        click.echo(f"warning: {path} has no records", err=True)


class TextFile(click.Path):
    """A file, converted to its text."""

    name = "FILE"

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = Path(str(super().convert(value, param, ctx)))
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.fail(f"{path} is not UTF-8 text: {error}", param, ctx)


class SchemaParam(click.ParamType[Any]):
    """A schema: a JSON file, or a Python type as ``module:Type``, also importable from the working directory."""

    name = "FILE|MODULE:TYPE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Target[Any]:
        from constrain.extract.target import Target

        is_file = os.path.isfile(value)  # noqa: PTH113  # Path.is_file raises where the name is too long
        return Target.of(self._from_file(Path(value)) if is_file else self._from_module(value))

    def _from_file(self, path: Path) -> Any:
        try:
            schema = json.loads(path.read_bytes(), object_pairs_hook=_without_repeats)
        except (OSError, ValueError, RecursionError) as error:
            hint = f"; a type in it is given as {path.stem}:TYPE" if path.suffix == ".py" else ""
            self.fail(f"{path} is not JSON: {error}{hint}")
        if not isinstance(schema, dict):
            self.fail(f"{path} is not a JSON Schema: that is an object, not {type_with_article(schema)}")
        return schema

    def _from_module(self, value: str) -> Any:
        if not re.fullmatch(r"[\w.]+:\w+", value):
            self.fail(f"there is no file {value!r}; a Python type is given as module:Type")
        module, _, name = value.partition(":")
        if Path(module).suffix == ".py":
            self.fail(f"{module!r} is a file; its module is {Path(module).stem}:{name}")
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            self.fail(f"{value!r} cannot be imported: {error}")
        except Exception as error:  # the module may raise anything
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = "" if isinstance(error, SyntaxError) else f" ({place.filename}, line {place.lineno})"
            self.fail(f"{value!r} cannot be imported: {type(error).__name__}: {error}{where}")


def _without_repeats(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a schema. Of members with one name, all but the last would be lost unseen."""
    names = Counter(name for name, _ in members)
    repeated = [name for name, number in names.items() if number > 1]
    if repeated:
        raise ValueError(f"an object has the member {repeated[0]!r} twice")
    return dict(members)


class FilterParam(click.ParamType[Any]):
    """A filter: ``name:argument=value,argument=value``."""

    name = "NAME:ARGUMENT=VALUE,..."

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> NamedFilter:
        from constrain.errors import PluginError
        from constrain.filters import NamedFilter

        try:
            return NamedFilter.parse(value)
        except PluginError as error:
            self.fail(str(error), param, ctx)


filters_option = click.option(
    "--filter",
    "filters",
    multiple=True,
    type=FilterParam(),
    help="A filter that constrain plugins lists, as a further constraint; give the option once for each filter.",
)


def _read_examples(ctx: click.Context, param: click.Parameter, path: Path | None) -> list[tuple[str, Any]]:
    if path is None:
        return []
    from constrain.extract.examples import read_examples

    return read_examples(path)


def prompt_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the prompt of extractions to a command, with the names of ``ExtractOptions``."""
    options = [
        click.option("--instructions", default="", help="Rules for the model, in words."),
        click.option(
            "--examples",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            callback=_read_examples,
            help='Examples, as lines of JSON: {"document": TEXT, "record": RECORD}.',
        ),
        click.option(
            "--thinking",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="Most tokens that a reasoning model may write before a record.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command
