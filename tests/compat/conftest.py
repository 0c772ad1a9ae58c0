from __future__ import annotations

from collections.abc import Iterator

import pytest

from constrain.compat.exllamav2 import install, uninstall


@pytest.fixture
def alias() -> Iterator[None]:
    """exllamav2 can be imported."""
    install()
    yield
    uninstall()
