"""The end of a program while requests are running, and its forks."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import constrain

llm = constrain.load()
schema = {"type": "array", "items": {"type": "string"}, "minItems": 3}
records = iter(llm.extract_many(schema, [f"Pears, figs and {number} plums." for number in range(64)]))
next(records)
raise ValueError("a mistake")
"""


def test_an_error_in_the_middle_of_a_run_ends_the_program_with_its_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("ValueError: a mistake")


_FORK = """
import multiprocessing
import constrain

llm = constrain.load()

def ask(question):
    return llm.choose(question, ["yes", "no"])

ask("Is it?")
with multiprocessing.get_context("fork").Pool(1) as pool:
    pool.apply_async(ask, ["Is it?"]).get(60)
"""


def test_a_fork_of_a_process_that_has_run_the_model_is_told_so() -> None:
    """It would wait for threads that it does not have."""
    ended = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True)
    assert "GenerationError: the model has run in the process that this one is a fork of" in ended.stderr
