"""Constraints that were made to blow up, in a process of their own.

This takes a sample of those of ``hostile``; ``python tests/engine/hostile`` puts all of them, and takes minutes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_hostile_constraints_end_in_masks_or_an_error() -> None:
    command = [sys.executable, str(Path(__file__).parent / "hostile"), "--every", "6", "--seconds", "1"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.splitlines()[-1].startswith("97 constraints, 0 of them failed")
