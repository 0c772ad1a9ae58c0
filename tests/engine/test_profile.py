"""Profiles of schemas: their counters and structure; times are only there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from constrain.cli import cli
from constrain.engine import MaskTimes, SchemaProfile, compile_json_schema, profile_schema
from constrain.errors import ArgumentError, UnsatisfiableSchema
from constrain.testing import byte_vocabulary, small_vocabulary

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "sizes": {"type": "array", "items": {"enum": [1, 22]}}},
    "required": ["name", "sizes"],
    "additionalProperties": False,
}
TEXT = b'{"name": "Ada", "sizes": [1, 22]}'


def profiled(**options: Any) -> SchemaProfile:
    return profile_schema(SCHEMA, byte_vocabulary(), [list(TEXT)], **options)


def test_masks_along_a_document() -> None:
    profile = profiled(num_walks=0)
    assert profile.documents == (1, 0)
    for masks in profile.passes.values():
        assert [mask.position for mask in masks] == list(range(len(TEXT) + 1))
        assert [mask.pointer for mask in masks][len(b'{"name": "')] == "/name"
        assert masks[TEXT.index(b"22")].pointer == "/sizes/1"
        assert masks[TEXT.index(b"22")].before.endswith('"sizes": [1, ')
        assert all(mask.seconds > 0 for mask in masks)
    assert profile.first[0].allowed == 1  # the brace
    assert profile.within_budget[-1].allowed == profile.first[-1].allowed == 1  # the end
    assert all(mask.within_budget and "budget" in mask.reason for mask in profile.within_budget)
    budgeted = {mask.position: mask.allowed for mask in profile.within_budget}
    assert all(budgeted[mask.position] <= mask.allowed for mask in profile.first)
    assert any(budgeted[mask.position] < mask.allowed for mask in profile.first)


def test_counters_say_what_was_done() -> None:
    profile = profiled(num_walks=0)
    built = [mask for mask in profile.first if not mask.cached]
    assert built and sum(mask.nodes_visited for mask in built) > 0
    assert "nodes visited" in max(built, key=lambda mask: mask.nodes_visited).reason
    assert sum(mask.cached for mask in profile.again) > sum(mask.cached for mask in profile.first)
    assert sum(mask.nodes_visited for mask in profile.again) <= sum(mask.nodes_visited for mask in built)
    assert profile.final_states == profile.counters["states"] > profile.states
    visited = sum(mask.nodes_visited for masks in profile.passes.values() for mask in masks)
    assert 0 < visited <= profile.counters["nodes_visited"]


def test_sampled_documents_are_valid_and_end() -> None:
    vocabulary = small_vocabulary()
    profile = profile_schema(SCHEMA, vocabulary, num_walks=5, max_tokens=30, seed=2)
    assert profile.documents == (0, 5)
    assert {mask.document for mask in profile.first} == set(range(5))
    assert [mask.position for mask in profile.first if mask.position == 0] == [0] * 5
    again = profile_schema(SCHEMA, vocabulary, num_walks=5, max_tokens=30, seed=2)
    assert [mask.before for mask in again.first] == [mask.before for mask in profile.first]
    ends = [mask.before for mask, after in zip(profile.first, [*profile.first[1:], None], strict=True)
            if after is None or after.document != mask.document]  # fmt: skip
    grammar = compile_json_schema(SCHEMA, vocabulary)
    assert all(end.endswith("}") for end in ends)
    assert any(grammar.accepts(end) for end in ends if len(end) < 40)


def test_slowest_masks_are_of_different_places() -> None:
    profile = profiled(num_walks=2)
    slowest = profile.slowest(4)
    assert [mask.seconds for _, mask in slowest] == sorted((mask.seconds for _, mask in slowest), reverse=True)
    assert slowest[0][1].seconds == max(mask.seconds for masks in profile.passes.values() for mask in masks)
    assert not {"/sizes/0", "/sizes/1"} <= {mask.pointer for _, mask in slowest}
    assert profile.slowest(0) == []


def test_figures() -> None:
    profile = profiled(num_walks=0)
    times = MaskTimes.of(profile.first)
    assert times.count == len(TEXT) + 1
    assert 0 < times.p50 <= times.p99 <= times.slowest
    assert times.cached == sum(mask.cached for mask in profile.first)
    assert MaskTimes.of([]) == MaskTimes(0, 0, 0, 0, 0, 0, 0)
    assert json.loads(json.dumps(profile.json(2)))["masks"]["first"]["count"] == times.count


def test_mistakes() -> None:
    with pytest.raises(ArgumentError, match=r"document 1 .* line 1, column 2"):
        profile_schema(SCHEMA, byte_vocabulary(), [list(TEXT), list(b"{}")])
    with pytest.raises(ArgumentError, match="num_walks"):
        profile_schema(SCHEMA, byte_vocabulary(), num_walks=-1)
    with pytest.raises(UnsatisfiableSchema):
        profile_schema(False, byte_vocabulary())


def test_command(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "ada.json").write_bytes(TEXT + b"\n")
    arguments = ["profile-schema", str(tmp_path / "schema.json"), "--instance", str(tmp_path / "ada.json")]
    printed = CliRunner().invoke(cli, arguments, env={"COLUMNS": "200"})
    assert printed.exit_code == 0, printed.output
    assert "documents: 1 given, 4 sampled" in printed.output
    assert "within a budget" in printed.output
    found = json.loads(CliRunner().invoke(cli, [*arguments, "--walks", "0", "--json", "--slowest", "1"]).output)
    assert found["documents"] == {"given": 1, "sampled": 0}
    assert len(found["slowest"]) == 1
    (tmp_path / "bad.json").write_text("[]")
    refused = CliRunner().invoke(cli, [*arguments, "--instance", str(tmp_path / "bad.json")])
    assert refused.exit_code == 1
    assert "document 1 is not valid" in refused.output
