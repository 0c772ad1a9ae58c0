"""``run_extraction``: a model, documents and a file in one call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import constrain
from constrain.errors import ArgumentError, SchemaError
from constrain.extract import Target
from constrain.filters import create
from constrain.generator import ExLlamaV2Sampler
from constrain.runs import LazyModel, open_output, run_extraction, settings_of

SCHEMA = {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}, "required": ["kind"]}


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> constrain.LLM:
    return constrain.load(tiny_dir)


def settings(llm: constrain.LLM, **options: Any) -> str:
    return settings_of(LazyModel.of(llm), Target.of(SCHEMA), options)  # type: ignore[arg-type]


def test_records_of_a_model_come_into_a_file(llm: constrain.LLM, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    assert run_extraction(llm, SCHEMA, ["yes", "no"], path).records == 2
    with open_output(path) as output:
        progress = run_extraction(llm, SCHEMA, ["yes", "no", " ", "hello"], output)
        assert (progress.present, progress.records, progress.failures) == (2, 1, 1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(line["key"].startswith(settings(llm)) for line in lines)
    assert lines[0]["record"]["kind"] in ("a", "b") and lines[0]["usage"]["prompt_tokens"] > 0


def test_arguments_are_checked_before_anything_is_written(llm: constrain.LLM, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for given in ("yes", b"yes", {"a": "yes"}, None):
        with pytest.raises(ArgumentError, match="documents must be a list of documents"):
            run_extraction(llm, SCHEMA, given, path)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="output must be a path, or what open_output returns, not None"):
        run_extraction(llm, SCHEMA, ["yes"], None)  # type: ignore[arg-type]
    assert not path.exists()


def test_a_schema_that_does_not_compile_is_one_error(llm: constrain.LLM, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="pattern"):
        run_extraction(llm, {"type": "string", "pattern": r"(a)\1"}, ["yes"], tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_settings_that_change_records_change_keys(llm: constrain.LLM) -> None:
    keys = [
        settings(llm),
        settings(llm, temperature=0.5),
        settings(llm, temperature=0.5, seed=1),
        settings(llm, settings=ExLlamaV2Sampler.Settings(min_p=0.1)),
        settings(llm, instructions="In euros."),
        settings(llm, examples=[("yes", {"kind": "a"})]),
        settings(llm, examples=[("yes", {"kind": "b"})]),
        settings_of(LazyModel.of(llm), Target.of({**SCHEMA, "description": "other"}), {}),
    ]
    assert len(set(keys)) == len(keys)
    assert settings(llm, seed=1) == settings(llm)  # greedy sampling is the same for each seed


def test_defaults_and_limits_do_not(llm: constrain.LLM) -> None:
    assert settings(llm) == settings(
        llm, max_new_tokens=5, timeout=3, priority=1, instructions="", thinking=0, seed=None
    )


def test_what_later_runs_cannot_compare_is_refused(llm: constrain.LLM) -> None:
    regex = create("regex", llm.model, llm.tokenizer, pattern=".*")
    with pytest.raises(ArgumentError, match="filters cannot be an option of a run"):
        settings(llm, filters=[regex])
