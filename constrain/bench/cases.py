"""Benchmark cases for engines: schemas, and documents with their expected verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from constrain.errors import BenchmarkError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Instance:
    """A tokenized document, and whether it is valid."""

    tokens: list[int]
    valid: bool


@dataclass(frozen=True)
class Case:
    """A schema with valid and invalid documents."""

    name: str
    schema: Any
    instances: list[Instance]


def case_files(folder: Path, stride: int = 1) -> list[Path]:
    """Return every ``stride``-th case file of a folder, sorted by name.

    Raises:
        BenchmarkError: the folder has no case files.
    """
    files = sorted(folder.glob("*.json"))[::stride]
    if not files:
        raise BenchmarkError(f"{folder} holds no cases: they are files *.json")
    return files


def read_cases(files: list[Path], tokenizer: Tokenizer) -> Iterator[Case]:
    """Yield cases from MaskBench files: ``{"schema": ..., "tests": [{"data": ..., "valid": true}, ...]}``.

    Documents are serialised by ``json.dumps`` and tokenized by the tokenizer.

    Raises:
        BenchmarkError: a file is not in this format.
    """
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            instances = [_instance(test["data"], test["valid"], tokenizer) for test in content["tests"]]
            yield Case(file.name, content["schema"], instances)
        except KeyError as error:
            raise BenchmarkError(f"{file} is no case of the form of MaskBench: it has no {error}") from error
        except (ValueError, TypeError, RecursionError) as error:
            raise BenchmarkError(f"{file} is no case of the form of MaskBench: {error}") from error


def _instance(data: Any, valid: bool, tokenizer: Tokenizer) -> Instance:
    text = json.dumps(data, ensure_ascii=False)
    return Instance(tokenizer.encode(text, add_special_tokens=False).ids, bool(valid))
