"""The rooms of docs/architecture.md: who may import whom, without circles, and how large files and functions are."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

import constrain

PACKAGE = Path(constrain.__file__).parent
#: Rooms, and those that each may import; what is not listed stands before all of them.
ROOMS: dict[str, set[str]] = {"errors": set(), "lazy": set(), "arguments": {"errors"}}
ROOMS["engine"] = {"errors", "arguments", "lazy"}
ROOMS["tokenizer"] = {"engine"} | ROOMS["engine"]
ROOMS["kernels"] = {"errors", "arguments"}
ROOMS["model"] = {"kernels", "tokenizer"} | ROOMS["tokenizer"]
ROOMS["quantization"] = {"model"} | ROOMS["model"]
ROOMS["filters"] = {"tokenizer", "kernels"} | ROOMS["tokenizer"]
ROOMS["runtime"] = {"filters", "model"} | ROOMS["filters"] | ROOMS["model"]
ROOMS["generator"] = {"runtime"} | ROOMS["runtime"]
ROOMS["completion"] = {"generator"} | ROOMS["generator"]
ROOMS["documents"] = {"errors", "arguments"}
ROOMS["extract"] = {"completion", "documents"} | ROOMS["completion"]
ROOMS["runs"] = {"extract"} | ROOMS["extract"]
ROOMS["review"] = {"runs"} | ROOMS["runs"]
NATIVE = {"_core": {"engine", "kernels", "__init__"}, "_cuda": {"kernels"}}

MAX_FILES, MAX_LINES, MAX_MEDIAN = 40, 60, 8


def room_of(module: str) -> str:
    """``constrain.engine.schema`` -> ``engine``; the package itself is ``__init__``."""
    return [*module.split("."), "__init__"][1]


class Imports(ast.NodeVisitor):
    """Collects what a file imports from constrain: module and name, inside functions and for types too.

    Attributes:
        found: modules, and the names taken from them; ``""`` for a whole module.
    """

    def __init__(self, module: str, is_package: bool) -> None:
        self.parents = module.split(".")
        self.drop = 0 if is_package else 1
        self.found: list[tuple[str, str]] = []

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [(alias.name, "") for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            kept = self.parents[: len(self.parents) - self.drop - node.level + 1]
            base = ".".join([*kept, *filter(None, [base])])
        self.found += [(base, alias.name) for alias in node.names]


def sources() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(module: str, source: str, is_package: bool = False) -> list[tuple[str, str]]:
    visitor = Imports(module, is_package)
    visitor.visit(ast.parse(source))
    return [(base, name) for base, name in visitor.found if base.split(".")[0] == "constrain"]


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    room = room_of(module)
    bad = []
    for base, name in imports(module, source, is_package):
        target = f"{base}.{name}" if base == "constrain" else base
        wanted = room_of(target)
        if wanted in NATIVE:
            allowed = room in NATIVE[wanted]
        else:
            # All that comes after the rooms may import anything.
            allowed = wanted in (room, "__init__", "__version__") or wanted in ROOMS.get(room, {wanted})
        if not allowed:
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
        ("constrain.engine.vocabulary", "if TYPE_CHECKING:\n    from constrain.tokenizer import ExLlamaV2Tokenizer"),
        ("constrain.filters.base", "def f():\n    import constrain.generator.sampler"),
        ("constrain.filters.masks", "from constrain.model import ExLlamaV2"),
        ("constrain.model.loader", "from constrain import filters"),
        ("constrain.runtime.runtime", "from constrain.generator import ExLlamaV2Sampler"),
        ("constrain.filters.json_schema", "from constrain import _core"),
        ("constrain.generator.sampler", "from constrain._cuda import apply"),
        ("constrain.extract.result", "from constrain.llm import LLM"),
        ("constrain.llm", "from constrain._core import Matcher"),
    ],
)
def test_an_upward_import_is_found(module: str, source: str) -> None:
    assert violations(module, source)


# Circles

Graph = Mapping[str, set[str]]


def definitions() -> dict[str, dict[str, tuple[str, str]]]:
    """Names that packages re-export, each with the module that defines it and its name there."""
    return {
        module: {name: (base, name) for base, name in imports(module, path.read_text(), is_package=True)}
        for module, path in sources()
        if path.stem == "__init__"
    }


def graph() -> Graph:
    """The files that each file needs.

    A name that comes through the head of a package counts as an import of the file that defines it: heads have nothing
    of their own, and a file imports no head of a package that it is a part of but through Python, which loads heads
    first.
    """
    files = {module: path for module, path in sources() if path.stem != "__init__"}
    heads = definitions()

    def origin(base: str, name: str) -> str:
        while base in heads:
            if f"{base}.{name}" in files:
                return f"{base}.{name}"
            if name not in heads[base]:
                break
            base, name = heads[base][name]
        return base

    return {
        module: {origin(base, name) for base, name in imports(module, path.read_text())} - {module}
        for module, path in files.items()
    }


def circles(needs: Graph) -> list[list[str]]:
    """Files that need one another, each a list that ends where it began."""
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(path: list[str]) -> None:
        for target in sorted(needs.get(path[-1], ())):
            if target in path:
                found.append([*path[path.index(target) :], target])
            elif target not in done:
                visit([*path, target])
        done.add(path[-1])

    for module in needs:
        if module not in done:
            visit([module])
    return found


def test_no_files_need_one_another() -> None:
    found = circles(graph())
    assert not found, "\n".join(" -> ".join(circle) for circle in found)


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c", "b"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_names_lead_to_the_files_that_define_them() -> None:
    """Else circles that go through the head of a package would be overlooked."""
    assert "constrain.model.model" in graph()["constrain.runtime.model_runner"]


# Sizes


def test_folders_are_small() -> None:
    counts = Counter(str(path.parent.relative_to(PACKAGE)) for _, path in sources())
    assert not {folder: count for folder, count in counts.items() if count > MAX_FILES}


def function_lengths(source: str) -> Iterator[tuple[str, int]]:
    """Lines of the body of each function, without its docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_are_short() -> None:
    lengths = [
        (f"{module}.{name}", lines) for module, path in sources() for name, lines in function_lengths(path.read_text())
    ]
    long = [f"{name} has {lines} lines" for name, lines in lengths if lines > MAX_LINES]
    assert not long, "\n".join(long)
    assert statistics.median(lines for _, lines in lengths) <= MAX_MEDIAN


def test_functions_of_the_loop_are_short_with_signature_and_docstring() -> None:
    long = [
        f"{module}.{node.name}"
        for module, path in sources()
        if room_of(module) in ("generator", "runtime")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno >= MAX_LINES
    ]
    assert not long


def test_the_length_of_a_function_is_that_of_its_body() -> None:
    source = (
        'def f(\n    a,\n):\n    """Two\n    lines."""\n    b = a\n\n    return b\n\ndef g():\n    """No more."""\n'
    )
    assert list(function_lengths(source)) == [("f", 3), ("g", 0)]


# Light imports


def loaded_by(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import constrain",
        "import constrain.engine",
        "import constrain.cli",
        "import constrain.evaluation.calibration",
    ],
)
def test_light_imports_stay_light(statement: str) -> None:
    assert not {"torch", "transformers"} & loaded_by(statement)


@pytest.mark.parametrize("package", [name for name, names in definitions().items() if "lazy_names" in names])
def test_lazy_names_are_those_that_type_checkers_see(package: str) -> None:
    module, names = import_module(package), definitions()[package]
    del names["lazy_names"]
    assert names.keys() == {*module.__all__}
    for name, (home, _) in names.items():
        assert getattr(module, name) is getattr(import_module(home), name)


def test_names_of_the_package_are_loaded_on_first_use() -> None:
    assert "torch" in loaded_by("from constrain import ExLlamaV2")
    assert set(constrain.__all__) <= set(dir(constrain))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        constrain.nonsense
