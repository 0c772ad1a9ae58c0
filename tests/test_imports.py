"""The rooms of docs/architecture.md: each may import only from itself and from those listed before it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import constrain

PACKAGE = Path(constrain.__file__).parent
ROOMS = ["errors", "arguments", "engine", "tokenizer", "kernels", "model", "filters", "runtime", "generator"]
ROOMS += ["completion", "extract"]
FRONT = len(ROOMS)
NATIVE = {"_core": {"engine", "kernels", "__init__"}, "_cuda": {"kernels"}}


def room_of(module: str) -> str:
    """``constrain.engine.schema`` -> ``engine``; the package itself is ``__init__``."""
    return [*module.split("."), "__init__"][1]


def rank(room: str) -> int:
    return ROOMS.index(room) if room in ROOMS else FRONT


class RuntimeImports(ast.NodeVisitor):
    """Collects the modules of constrain that a file imports when it runs, inside functions too."""

    def __init__(self, module: str, is_package: bool) -> None:
        self.parents = module.split(".")
        self.drop = 0 if is_package else 1
        self.found: list[str] = []

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            node.body = []
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [alias.name for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            kept = self.parents[: len(self.parents) - self.drop - node.level + 1]
            base = ".".join([*kept, *filter(None, [base])])
        self.found += [f"constrain.{alias.name}" for alias in node.names] if base == "constrain" else [base]


def sources() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(module: str, source: str, is_package: bool = False) -> list[str]:
    visitor = RuntimeImports(module, is_package)
    visitor.visit(ast.parse(source))
    return [name for name in visitor.found if name.split(".")[0] == "constrain"]


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    room = room_of(module)
    bad = []
    for target in imports(module, source, is_package):
        wanted = room_of(target)
        allowed = room in NATIVE[wanted] if wanted in NATIVE else rank(wanted) <= rank(room)
        # Submodules import their own package's head (``constrain``) as soon as they are imported; that is no arrow.
        if wanted != "__init__" and not allowed:
            bad.append(f"{module} imports {target}")
    return bad


def test_every_import_goes_down() -> None:
    found = [bad for module, path in sources() for bad in violations(module, path.read_text(), path.stem == "__init__")]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("constrain.engine.schema", "from constrain.model import ExLlamaV2"),
        ("constrain.engine.schema", "from ..generator import ExLlamaV2Sampler"),
        ("constrain.filters.base", "def f():\n    import constrain.generator.sampler"),
        ("constrain.model.loader", "from constrain import filters"),
        ("constrain.filters.json_schema", "from constrain import _core"),
        ("constrain.generator.sampler", "from constrain._cuda import apply"),
        ("constrain.extract.result", "from constrain.llm import LLM"),
    ],
)
def test_an_upward_import_is_found(module: str, source: str) -> None:
    assert violations(module, source)


def test_types_may_point_anywhere() -> None:
    source = "if TYPE_CHECKING:\n    from constrain.tokenizer import ExLlamaV2Tokenizer"
    assert not violations("constrain.engine.vocabulary", source)


def loaded_by(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize("statement", ["import constrain", "import constrain.engine", "import constrain.cli"])
def test_light_imports_stay_light(statement: str) -> None:
    assert not {"torch", "transformers"} & loaded_by(statement)


def test_names_of_the_package_are_loaded_on_first_use() -> None:
    assert "torch" in loaded_by("from constrain import ExLlamaV2")
    assert set(constrain.__all__) <= set(dir(constrain))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        constrain.nonsense
