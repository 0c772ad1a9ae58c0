"""Discovery of filters in installed packages, with and without errors."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

import pytest

from constrain.errors import PluginError
from constrain.filters import ExLlamaV2SelectFilter, FilterManager, available, broken, create
from constrain.filters.manager import selected

GOOD = """
from constrain.filters import hookimpl

def make(model, tokenizer, words: list[str], *, strict: bool = False):
    return (model, tokenizer, words, strict)

@hookimpl
def constrain_filters():
    return NAMES
"""


class Site:
    """A folder of fake installed packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, source: str, value: str | None = None) -> None:
        module = name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(source)
        info = self.folder / f"{module}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[constrain.filters]\n{name} = {value or module}\n")

    def points(self) -> list[EntryPoint]:
        found = [point for dist in distributions(path=[str(self.folder)]) for point in dist.entry_points]
        return sorted(found, key=lambda point: point.name)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def good(*names: str) -> str:
    return GOOD.replace("NAMES", "{" + ", ".join(f"{name!r}: make" for name in names) + "}")


def test_a_plugin_offers_filters_by_name(site: Site) -> None:
    site.install("acme-filters", good("acme", "acme2"))
    manager = FilterManager(site.points())
    info = manager.filters["acme"]
    assert (info.name, info.plugin, info.origin, info.version) == ("acme", "acme-filters", "acme-filters", "1.2")
    assert info.signature == "(words: list[str], *, strict: bool = False)"
    assert sorted(manager.filters) == ["acme", "acme2"]
    assert manager.create("acme", 1, 2, words=["x"]) == (1, 2, ["x"], False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "value", "error"),
    [
        ("import no_such_module_anywhere", None, "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("raise SystemError('at import')", None, "SystemError: at import"),
        ("import sys; sys.exit('wrong version')", None, "SystemExit: wrong version"),
        ("class E(Exception):\n    __str__ = None\nraise E", None, "E: <exception str() failed>"),
        ("def constrain_filters(): return {}", None, "no function constrain_filters marked with hookimpl"),
        ("x = 1", "bad:missing", "AttributeError"),
        ("x = 1", "bad:x", "no function constrain_filters marked with hookimpl"),
        (good().replace("return", "1 / 0;"), None, "ZeroDivisionError"),
        (good().replace("return {}", "return ['acme']"), None, "must return names and factories, not list"),
        (good().replace("return {}", "return {'acme': 'make'}"), None, "not 'acme' to 'make'"),
        (good("good"), None, "acme offers a filter 'good' already"),
        (good("fine").replace("def constrain_filters()", "def constrain_filters(surplus)"), None, "surplus"),
    ],
)
def test_a_broken_plugin_is_named_and_skipped(site: Site, source: str, value: str | None, error: str) -> None:
    site.install("acme", good("good"))
    site.install("bad", source, value)
    with pytest.warns(UserWarning, match=r"plugin 'bad' of bad 1\.2 is skipped"):
        manager = FilterManager(site.points())
    assert list(manager.filters) == ["good"]
    (plugin,) = manager.broken
    assert (plugin.name, plugin.origin, plugin.version) == ("bad", "bad", "1.2")
    assert error in plugin.error
    with pytest.raises(PluginError, match="bad: "):
        manager.create("fine", None, None)  # type: ignore[arg-type]
    assert manager.create("good", None, None, words=[])  # type: ignore[arg-type]


def test_an_unknown_name_lists_the_available_ones() -> None:
    with pytest.raises(PluginError, match=r"no filter is called 'selct'; there are .*prefix.*select"):
        create("selct", None, None)  # type: ignore[arg-type]


def test_wrong_arguments_are_answered_with_the_signature() -> None:
    with pytest.raises(
        PluginError,
        match=r"filter 'regex' takes \(pattern: str \| re.Pattern\[str\]\): missing a required argument: 'pattern'",
    ):
        create("regex", None, None, patern="a")  # type: ignore[arg-type]


def test_errors_of_the_filter_itself_come_through(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="options"):
        create("select", None, tokenizer, options=[])  # type: ignore[arg-type]


def test_the_built_in_filters_are_found_as_plugins(tokenizer: Any) -> None:
    infos = {info.name: info for info in available()}
    assert {"prefix", "select", "regex", "grammar", "json_schema"} <= set(infos)
    assert infos["select"].origin.startswith("constrain")
    assert infos["select"].signature == "(options: Sequence[str], case_insensitive: bool = False)"
    assert isinstance(create("select", None, tokenizer, options=["a"]), ExLlamaV2SelectFilter)  # type: ignore[arg-type]
    assert not [plugin for plugin in broken() if plugin.origin == infos["select"].origin]


def test_plugins_can_be_excluded(site: Site) -> None:
    for name in ("one", "two"):
        site.install(name, good(name))
    site.install("zebra", good("zebra"), "constrain.filters.builtin")
    assert [point.name for point in selected(site.points(), None)] == ["zebra", "one", "two"]
    assert [point.name for point in selected(site.points(), "none")] == ["zebra"]
    assert [point.name for point in selected(site.points(), "two, three")] == ["zebra", "two"]


PROGRAM = """
from constrain.filters import available, broken
ours = "acme", "bad"  # whatever else is installed
print(*([each.name for each in found if each.origin in ours] for found in (available(), broken())))
"""


@pytest.mark.parametrize(
    ("wanted", "expected"), [(None, "['good'] ['bad']"), ("none", "[] []"), ("acme", "['good'] []")]
)
def test_a_whole_program_survives_a_broken_plugin(site: Site, wanted: str | None, expected: str) -> None:
    site.install("acme", good("good"))
    site.install("bad", "raise RuntimeError('at import')")
    environment = {"PYTHONPATH": str(site.folder), **({"CONSTRAIN_PLUGINS": wanted} if wanted else {})}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True
    )
    assert result.stdout.strip() == expected
    assert ("plugin 'bad' of bad 1.2 is skipped: RuntimeError: at import" in result.stderr) == (wanted is None)
