"""The lock of an output: one process writes it at a time, and another one is told which."""

from __future__ import annotations

import json
import os
import platform
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from constrain.errors import OutputInUse


class OutputLock:
    """Locks an output until it is released, or the process ends in whatever way.

    The lock is a hidden file beside the output. It stays there after the release: if it were removed, two processes
    could each lock one of that name. In another file the holder describes itself.
    """

    def __init__(self, output: Path) -> None:
        """
        Raises:
            OutputInUse: another process, or another run of this one, has the lock.
            OSError: the lock file cannot be written.
        """
        self._holder = output.with_name(f".{output.name}.writer")
        path = output.with_name(f".{output.name}.lock")
        path.touch()  # the lock takes what cannot be written for what is locked
        self._lock = FileLock(path)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise OutputInUse(str(output), _described(self._holder)) from None
        self._holder.write_text(json.dumps(_this_process()), encoding="utf-8")

    def release(self) -> None:
        """Release the lock."""
        self._holder.unlink(missing_ok=True)
        self._lock.release()


def _this_process() -> dict[str, str]:
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    return {"pid": str(os.getpid()), "host": platform.node(), "since": since}


def _described(holder: Path) -> str:
    """Describe the process that holds a lock."""
    try:
        found = json.loads(holder.read_text(encoding="utf-8"))
        return f"process {found['pid']} on {found['host']} since {found['since']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"  # which has not described itself yet
