"""The texts that exllamav2's scripts evaluate models on."""

from __future__ import annotations

from pathlib import Path

import torch

from constrain.arguments import check_count
from constrain.errors import ArgumentError
from constrain.tokenizer import ExLlamaV2Tokenizer


def get_tokens(num_rows: int, length: int, filename: str | Path, tokenizer: ExLlamaV2Tokenizer) -> torch.Tensor:
    """Read tokens of a Parquet file.

    The texts of its rows follow one another, without BOS; a row with several columns is their values with spaces
    between them.

    Args:
        num_rows, length: shape of the result.
        filename: the file.
        tokenizer: encodes the texts.

    Returns:
        int64 ``[num_rows, length]``.

    Raises:
        ArgumentError: the file cannot be read, or has fewer tokens.
    """
    check_count("num_rows", num_rows, 1)
    check_count("length", length, 1)
    ids: list[int] = []
    for text in _rows(filename):
        ids += tokenizer.encode(text)[0].tolist()
        if len(ids) >= num_rows * length:
            return torch.tensor(ids[: num_rows * length]).view(num_rows, length)
    raise ArgumentError(f"{filename} has {len(ids):,} tokens, and {num_rows} rows of {length} were asked for")


def _rows(filename: str | Path) -> list[str]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        needed = "reading Parquet needs pyarrow: pip install 'constrain-lm[documents]'"
        raise ArgumentError(f"{filename}: {needed}") from error
    try:
        rows = parquet.read_table(filename).to_pylist()
    except (OSError, ArrowException) as error:
        raise ArgumentError(f"{filename} cannot be read as Parquet: {error}") from error
    return [" ".join(map(str, row.values())) for row in rows]
