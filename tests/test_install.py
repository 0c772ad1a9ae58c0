"""``constrain`` and its compiled module are found after both kinds of install, from the checkout and from elsewhere."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import constrain._core

CHECKOUT = Path(__file__).parents[1]

ENGINE = CHECKOUT / "packaging" / "engine"

pytestmark = pytest.mark.skipif(not (CHECKOUT / "pyproject.toml").is_file(), reason="needs the checkout")


@dataclass(frozen=True)
class Install:
    python: Path
    packages: Path

    def run(self, *args: str, cwd: Path) -> str:
        command = [str(self.python), *args]
        run = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()


@contextmanager
def building_alone() -> Iterator[None]:
    """Wait for other processes of the tests: builds share a folder in the checkout, as those of users do."""
    folder = CHECKOUT / "build"
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module", params=["build_wheel", "build_editable"])
def install(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Install:
    """A fresh environment with both distributions installed by one hook of the build backend.

    The dependencies come from this environment by a plain path, whose own ``.pth`` files Python does not read: what is
    installed here, an editable constrain as a rule, does not leak.
    """
    folder = tmp_path_factory.mktemp(request.param)
    hook = f"from scikit_build_core import build; print(build.{request.param}({str(folder)!r}))"
    with building_alone():
        for source in (ENGINE, CHECKOUT):
            subprocess.run([sys.executable, "-c", hook], cwd=source, check=True, capture_output=True)

    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, *map(str, folder.glob("*.whl"))], check=True)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return Install(python, packages)


@pytest.mark.parametrize("in_checkout", [True, False])
def test_runs_from_anywhere(install: Install, tmp_path: Path, in_checkout: bool) -> None:
    cwd = CHECKOUT if in_checkout else tmp_path
    core = install.run("-c", "import constrain.engine, constrain._core as core; print(core.__file__)", cwd=cwd)
    assert Path(core).parent == install.packages / "constrain"
    assert "Usage" in install.run("-m", "constrain", "--help", cwd=cwd)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs the CUDA compiler")
def test_the_cuda_module_is_built_where_nvcc_is_and_loads_without_a_gpu(install: Install, tmp_path: Path) -> None:
    cuda = install.run("-c", "import constrain._cuda as cuda; print(cuda.__file__)", cwd=tmp_path)
    assert Path(cuda).parent == install.packages / "constrain"


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs the tools of the linker")
def test_modules_export_their_entry_points_alone(install: Install) -> None:
    """Another exported symbol could replace one of torch, or be replaced by it."""
    for module in (install.packages / "constrain").glob("_*.so"):
        command = ["nm", "--dynamic", "--extern-only", "--defined-only", "--format=just-symbols", str(module)]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert listed.split() == [f"PyInit_{module.name.split('.')[0]}"]


def test_the_distributions_share_no_file(install: Install) -> None:
    records = [folder / "RECORD" for folder in install.packages.glob("constrain_lm*.dist-info")]
    engine, rest = ({line.split(",")[0] for line in record.read_text().splitlines()} for record in records)
    assert engine and rest and not engine & rest


def test_wheels_hold_the_whole_package(install: Install) -> None:
    if any(install.packages.glob("_editable*.pth")):
        pytest.skip("editable: the sources stay where they are")
    sources = {file.relative_to(CHECKOUT) for file in (CHECKOUT / "constrain").rglob("*.py")}
    assert sources == {file.relative_to(install.packages) for file in (install.packages / "constrain").rglob("*.py")}


# The engine, a distribution of its own

NOT_OF_THE_ENGINE = ["click", "jinja2", "pydantic", "rich", "safetensors", "tokenizers", "torch", "tqdm"]
CHECKS = """
assert constrain.__file__.startswith(os.getcwd())
assert [token for token in range(vocabulary.size) if bitmask[0, token // 32] >> token % 32 & 1] == list(b'"')
try:
    constrain.load
except ImportError as error:
    assert "install constrain-lm" in str(error)
else:
    raise SystemExit("constrain.load came from elsewhere")
"""


def test_the_rest_depends_on_the_engine_of_its_version() -> None:
    whole, engine = ((folder / "pyproject.toml").read_text() for folder in (CHECKOUT, ENGINE))
    (version,) = re.findall('^version = "(.+)"$', engine, re.MULTILINE)
    assert f'version = "{version}"' in whole
    assert f'"constrain-lm-engine=={version}"' in whole


def test_the_sources_of_the_engine_run_with_its_dependencies_alone(tmp_path: Path) -> None:
    for name in re.findall(r'^"(constrain/.+?)" = ', (ENGINE / "pyproject.toml").read_text(), re.MULTILINE):
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy
        (tmp_path / name).parent.mkdir(exist_ok=True)
        copy(CHECKOUT / name, tmp_path / name)
    shutil.copy(constrain._core.__file__, tmp_path / "constrain")

    # Without `site`, no finder of an editable install takes the place of the copy.
    packages = str(Path(np.__file__).parents[1])
    start = f"import os, sys; sys.path.append({packages!r}); sys.modules |= dict.fromkeys({NOT_OF_THE_ENGINE})\n"
    lines = (ENGINE / "README.md").read_text().splitlines()
    example = "\n".join(line[4:] for line in lines if line.startswith("    "))
    program = f"{start}import constrain\n{example}{CHECKS}"
    run = subprocess.run([sys.executable, "-S", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
