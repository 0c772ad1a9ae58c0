"""A CUDA device, for tests that compare kernels with their references."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def cuda() -> torch.device:
    return torch.device("cuda")
