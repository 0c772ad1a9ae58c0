from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import constrain
from constrain.compat.exllamav2 import install, uninstall
from constrain.compat.exllamav2.names import MODULES
from constrain.errors import AliasError


def test_nothing_is_there_unless_asked_for() -> None:
    assert importlib.util.find_spec("exllamav2") is None
    with pytest.raises(ImportError):
        import exllamav2  # noqa: F401
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("exllamav2")


def test_what_is_installed_is_found_and_goes_away_again() -> None:
    install()
    install()
    assert importlib.util.find_spec("exllamav2") and importlib.util.find_spec("exllamav2.generator.filters")
    assert importlib.metadata.version("exllamav2") == importlib.metadata.version("ExLlamaV2") == "0.3.2"
    assert "exllamav2" in {found.metadata["Name"] for found in importlib.metadata.distributions()}
    import exllamav2

    assert exllamav2.ExLlamaV2Cache is constrain.ExLlamaV2Cache and exllamav2.__version__ == "0.3.2"
    assert issubclass(exllamav2.ExLlamaV2, constrain.ExLlamaV2)
    with pytest.raises(ImportError):
        import exllamav2.nonsense
    uninstall()
    uninstall()
    test_nothing_is_there_unless_asked_for()


@pytest.mark.usefixtures("alias")
@pytest.mark.parametrize("module", list(MODULES))
def test_every_module_has_its_names(module: str) -> None:
    loaded = importlib.import_module(".".join(filter(None, ["exllamav2", module])))
    assert all(hasattr(loaded, name) for name in MODULES[module])


@pytest.mark.usefixtures("alias")
def test_star_imports_and_submodules() -> None:
    names: dict[str, Any] = {}
    exec("from exllamav2 import *\nfrom exllamav2.generator import *\nfrom exllamav2 import model_init", names)
    for module in ("", "generator"):
        assert {name for name in MODULES[module] if not name.startswith("_")} <= names.keys()
    assert names["model_init"].add_args


def real_package(folder: Path) -> Path:
    package = folder / "exllamav2"
    package.mkdir()
    (package / "__init__.py").write_text("real = True\n")
    return folder


def test_a_real_exllamav2_is_not_shadowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(real_package(tmp_path))
    with pytest.raises(AliasError, match=r"install\(replace=True\)"):
        install()
    install(replace=True)
    import exllamav2

    assert not hasattr(exllamav2, "real")
    uninstall()
    import exllamav2 as real

    assert real.real
    with pytest.raises(AliasError, match="imported already"):
        install(replace=True)
    del sys.modules["exllamav2"]


def test_a_folder_of_that_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exllamav2").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    install()
    uninstall()


SCRIPT = """
import sys
from pathlib import Path
from exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer
from exllamav2.generator import ExLlamaV2BaseGenerator, ExLlamaV2Sampler
from helper import PROMPT

config = ExLlamaV2Config(sys.argv[1])
config.arch_compat_overrides()
model = ExLlamaV2(config)
cache = ExLlamaV2Cache(model, max_seq_len=128, lazy=True)
model.load_autosplit(cache)
generator = ExLlamaV2BaseGenerator(model, cache, ExLlamaV2Tokenizer(config))
generator.warmup()
text = generator.generate_simple(PROMPT, ExLlamaV2Sampler.Settings.greedy(), 5)
print(__name__, Path(sys.argv[0]).name, text.startswith(PROMPT))
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "constrain.compat.exllamav2", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_scripts_run(tmp_path: Path, tiny_dir: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "program.py").write_text(SCRIPT)
    (scripts / "helper.py").write_text("PROMPT = 'hello there'\n")
    done = run("scripts/program.py", str(tiny_dir), cwd=tmp_path)
    assert done.stdout.split() == ["__main__", "program.py", "True"], done.stderr


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    assert "usage:" in run(cwd=tmp_path).stderr
    asked = run("--help", cwd=tmp_path)
    assert asked.returncode == 0 and "SCRIPT ARGS..." in asked.stdout
    missing = run("missing.py", cwd=tmp_path)
    assert missing.returncode == 1 and missing.stderr.strip() == "missing.py: no such file"
    (tmp_path / "script.py").touch()
    real_package(tmp_path)
    assert "a real exllamav2 is installed" in run("script.py", cwd=tmp_path).stderr
