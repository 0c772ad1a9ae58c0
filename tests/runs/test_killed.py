"""Runs that are killed at any moment and started again lose nothing, repeat nothing, and leave nothing torn."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

import constrain

TESTS = Path(__file__).parents[1]
ROOT = Path(constrain.__file__).parents[1]

#: Interval of the moments of a small run that are tried; with 1 the test takes a few minutes.
STRIDE = 37

#: Extracts documents into a file until a moment; returns the number of moments, or ``None`` if it was killed.
Attempt: TypeAlias = Callable[[str, int], "int | None"]


@contextmanager
def attempts(folder: Path, number: int) -> Iterator[Attempt]:
    command = [sys.executable, str(TESTS / "runs" / "kill_driver.py"), str(folder), str(number)]
    env = {**os.environ, "PYTHONPATH": f"{TESTS / 'shared'}:{ROOT}"}
    with subprocess.Popen(command, env=env, stdin=-1, stdout=-1, text=True) as driver:
        assert driver.stdin is not None and driver.stdout is not None
        questions, answers = driver.stdin, driver.stdout

        def attempt(name: str, moment: int) -> int | None:
            questions.write(f"{name} {moment}\n")
            questions.flush()
            answer = answers.readline().strip()
            return None if answer == "killed" else int(answer)

        yield attempt


def sources(path: Path) -> list[str]:
    return [json.loads(line)["source"] for line in path.read_bytes().splitlines()]


@pytest.mark.seeds(2)
def test_500_documents_and_20_kills(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with attempts(tmp_path, 500) as attempt:
        moments = attempt("whole.jsonl", 0)
        assert moments
        kills = sum(attempt("out.jsonl", chance.randrange(1, moments // 4)) is None for _ in range(20))
        attempt("out.jsonl", 0)
    assert kills >= 15
    assert sources(tmp_path / "out.jsonl") == [f"{index}.txt" for index in range(500)]
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_every_moment_of_a_small_run(tmp_path: Path, suffix: str) -> None:
    """Also those in which lines are torn, or the file is replaced by one in order."""
    with attempts(tmp_path, 10) as attempt:
        moments = attempt(f"whole.{suffix}", 0)
        assert moments
        whole = (tmp_path / f"whole.{suffix}").read_bytes()
        for moment in range(1, moments, STRIDE):
            name = f"{moment}.{suffix}"
            assert attempt(name, moment) is None
            attempt(name, 0)
            assert (tmp_path / name).read_bytes() == whole, moment
            assert not list(tmp_path.glob(".*.new")), moment
