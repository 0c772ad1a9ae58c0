"""Keys of the same work are equal everywhere, and differ in everything that would change a record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from constrain.errors import ArgumentError
from constrain.runs import model_identity, settings_key, work_key

SCHEMA = {"type": "object", "properties": {"a": {}, "b": {}}}


def test_a_key_is_fixed() -> None:
    """Else files of former versions would be extracted again: then raise VERSION, and say so in the changelog."""
    settings = settings_key(SCHEMA, "model", "prompt", {"seed": 1})
    key = work_key(settings, "a.txt", {"page": 3}, "text")
    assert key == "665542b14a52fdfd5ccf51c37530457fccd056a1b71e6b75"


def test_settings() -> None:
    first = settings_key(SCHEMA, "model", "prompt", {"seed": 1, "top_p": 0.5})
    assert len(first) == 16
    assert first == settings_key(SCHEMA, "model", "prompt", {"top_p": 0.5, "seed": 1})
    turned = {"type": "object", "properties": {"b": {}, "a": {}}}  # fields are written in their order
    others = [
        settings_key(turned, "model", "prompt", {"seed": 1, "top_p": 0.5}),
        settings_key(SCHEMA, "other", "prompt", {"seed": 1, "top_p": 0.5}),
        settings_key(SCHEMA, "model", "other", {"seed": 1, "top_p": 0.5}),
        settings_key(SCHEMA, "model", "prompt", {"seed": 2, "top_p": 0.5}),
    ]
    assert len({first, *others}) == 5


def test_options_that_later_runs_cannot_compare_are_refused() -> None:
    with pytest.raises(ArgumentError, match="filters cannot be an option of a run"):
        settings_key(SCHEMA, "model", "prompt", {"filters": [object()]})


def test_documents() -> None:
    keys = {
        work_key("0" * 16, "a.txt", {}, "text"),
        work_key("1" * 16, "a.txt", {}, "text"),
        work_key("0" * 16, "b.txt", {}, "text"),
        work_key("0" * 16, "a.txt", {"page": 1}, "text"),
        work_key("0" * 16, "a.txt", {}, "other"),
        work_key("0" * 16, "a.txt", {}, ""),
        work_key("0" * 16, "a.txt", {}, None),
    }
    assert len(keys) == 7 and {len(key) for key in keys} == {48}


def test_a_model_is_known_by_its_files_and_not_by_its_place(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(bytes(3 << 20))
        (tmp_path / name / "README.md").write_text(name)
    one = model_identity(tmp_path / "one")
    assert one == model_identity(tmp_path / "two")
    weights = bytearray(3 << 20)
    weights[1 << 20 : 2 << 20] = b"\1" * (1 << 20)
    (tmp_path / "two" / "model.safetensors").write_bytes(weights)
    assert one != model_identity(tmp_path / "two")
    (tmp_path / "one" / "config.json").write_text('{"a": 1}')
    assert one != model_identity(tmp_path / "one")


def test_keys_need_no_torch() -> None:
    code = "import sys, constrain.runs; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
