"""Optional libraries of the readers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from constrain.errors import DocumentError


@contextmanager
def optional(source: str) -> Iterator[None]:
    """Import libraries inside of the block.

    Args:
        source: name of the document that needs them.

    Raises:
        DocumentError: a library is not installed.
    """
    try:
        yield
    except ImportError as error:
        needed = f"reading it needs {error.name}, which is not installed: pip install 'constrain-lm[documents]'"
        raise DocumentError(source, needed) from error
