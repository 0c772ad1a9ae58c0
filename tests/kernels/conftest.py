"""A CUDA device, for tests that compare kernels with their references."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def cuda() -> torch.device:
    """The device; the test is skipped where there is none, or no kernels for it."""
    pytest.importorskip("constrain._cuda")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device("cuda")
