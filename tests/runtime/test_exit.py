"""The end of a program while requests are running."""

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
