"""Names of parameters in tests."""

from __future__ import annotations

import re


def without_addresses(value: object) -> str:
    """Return ``str(value)`` without addresses of objects, since processes that share the tests must agree on names."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))
