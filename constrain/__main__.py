"""``python -m constrain`` is the command line."""

from __future__ import annotations

from constrain.cli import main

if __name__ == "__main__":
    main()
