"""Runs that are killed: a program of its own, since it forks, which is safe only in a process without threads.

    python kill_driver.py FOLDER NUMBER

Reads lines ``NAME MOMENT``. For each it extracts NUMBER documents into FOLDER/NAME in a child process that kills itself
at this moment: when it has executed this many lines of constrain.runs; 0 is never. Answers with the number of lines
that were executed, or with ``killed``. Writes are short ones, so that there are moments in the middle of each line.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from stub_extraction import documents, run

import constrain.runs
from constrain.runs import open_output

PACKAGE = str(Path(constrain.runs.__file__).parent)

write = os.write


def write_half(file: int, data: Any) -> int:
    return write(file, data[: len(data) // 2 + 1])


class Moments:
    """Counts the lines that are executed in the package, and kills the process at one of them."""

    def __init__(self, last: int) -> None:
        self.count, self._last = 0, last

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.count += 1
            if self.count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.trace


def extract_until(moment: int, path: Path, number: int) -> int:
    """Extract in this process until it is killed, and return the number of moments."""
    moments = Moments(moment)
    os.write = write_half
    sys.settrace(moments.trace)
    with open_output(path) as output:
        run(output, documents(number))
    sys.settrace(None)
    return moments.count


def answer(moment: int, path: Path, number: int) -> str:
    """Extract in a child process."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        write(writer, str(extract_until(moment, path, number)).encode())
        os._exit(0)
    os.close(writer)
    text = os.read(reader, 100).decode()
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    return "killed" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else text


if __name__ == "__main__":
    for line in sys.stdin:
        name, moment = line.split()
        print(answer(int(moment), Path(sys.argv[1], name), int(sys.argv[2])), flush=True)
