"""The group of commands, and what they have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from constrain.bench.shapes import SHAPES
from constrain.cli.options import FOLDER, OutputFile
from constrain.errors import BenchmarkError

tokenizer_option = click.option(
    "--tokenizer", "tokenizer_dir", type=FOLDER, required=True, help="Folder with a tokenizer.json."
)
shape_option = click.option(
    "--shape", type=click.Choice(sorted(SHAPES)), default="llama-3.1-8b", show_default=True, help="Shape of the model."
)
# At most ModelRunner.max_rows, whose module needs torch.
ROWS = click.IntRange(min=1, max=256)
json_option = click.option("--json", "output", type=OutputFile(), help="File for all figures.")


@click.group()
def bench() -> None:
    """Measure constraint engines, and inference on a GPU."""


def write_figures(figures: dict[str, Any], output: Path | None) -> None:
    """Write figures as JSON, if a file is given."""
    if output is not None:
        output.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def require_gpu() -> None:
    """Raise :class:`BenchmarkError` if there is no GPU for which there are kernels."""
    from torch import cuda

    from constrain.kernels.cuda import module

    if not cuda.is_available() or module is None:
        raise BenchmarkError("no CUDA device, or constrain was built without a CUDA compiler")
