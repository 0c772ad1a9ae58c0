"""Runs a script that was written for exllamav2: ``python -m constrain.compat.exllamav2 SCRIPT ARGS...``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from constrain.compat.exllamav2 import install
from constrain.errors import AliasError

_USAGE = "usage: python -m constrain.compat.exllamav2 SCRIPT ARGS..."


def main() -> None:
    """Run a script with the alias, otherwise like ``python SCRIPT ARGS...``."""
    if len(sys.argv) < 2:
        sys.exit(_USAGE)
    if sys.argv[1] in ("-h", "--help"):
        print(_USAGE)
        return
    script = Path(sys.argv[1])
    if not script.is_file():
        sys.exit(f"{script}: no such file")
    try:
        install()
    except AliasError as error:
        sys.exit(str(error))
    sys.argv = sys.argv[1:]
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
