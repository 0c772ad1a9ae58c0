"""The script for compute-sanitizer launches every kernel compiled for this GPU, sums over GPUs where there are some."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from constrain.kernels import can_access_peers


@pytest.mark.gpu
def test_every_kernel_is_launched(cuda: torch.device) -> None:
    cuobjdump, demangle = shutil.which("cuobjdump"), shutil.which("c++filt")
    if cuobjdump is None or demangle is None:
        pytest.skip("needs cuobjdump, of the CUDA toolkit, and c++filt")
    usage = output_of([cuobjdump, "-res-usage", str(sys.modules["constrain._cuda"].__file__)])
    compiled = output_of([demangle], "\n".join({*re.findall(r"Function (\w+):", usage)}))
    ran = output_of([sys.executable, str(Path(__file__).with_name("every_kernel.py")), "--names"])
    expected = kernels(compiled)
    # Warpgroups, where there are such, compute products of some rows with codes of four bits.
    warpgroups = torch.cuda.get_device_capability()[0] == 9
    others = r"multiply_many_rows<.*4Codes, .*\b128, .*, 4>" if warpgroups else "multiply_warpgroup_rows"
    expected = {name for name in expected if not re.search(others, name)}
    if not can_access_peers([torch.device("cuda", index) for index in range(min(2, torch.cuda.device_count()))]):
        expected = {name for name in expected if "sum_ranks" not in name}
    assert kernels(ran) == expected != set()


def output_of(command: list[str], given: str = "") -> str:
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=True).stdout


def kernels(declarations: str) -> set[str]:
    """Names with their template arguments."""
    return {line.removeprefix("void ").rpartition("(")[0] for line in declarations.splitlines() if "constrain" in line}
