"""The other commands, and those that packages add."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner, Result

import constrain
from constrain.cli import cli, main
from constrain.completion import Completion
from constrain.kernels import multiplies_packed


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args), env={"COLUMNS": "200"})


def test_generate_keeps_to_the_constraint(tiny_dir: Path) -> None:
    result = run("generate", "hello", "--model", str(tiny_dir), "--regex", "[0-9]{3}", "--seed", "1")
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"\d{3}\n", result.stdout)
    assert run("generate", "hello", "--model", str(tiny_dir), "--choice", "a", "--choice", "b").stdout in ("a\n", "b\n")


def test_generate_reads_grammars_and_schemas_from_files(tiny_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "g.lark").write_text('start: "x"~3')
    (tmp_path / "s.json").write_text('{"const": {"a": 1}}')
    assert run("generate", "hi", "--model", str(tiny_dir), "--grammar", str(tmp_path / "g.lark")).stdout == "xxx\n"
    answer = run("generate", "hi", "--model", str(tiny_dir), "--schema", str(tmp_path / "s.json")).stdout
    assert json.loads(answer) == {"a": 1}


def test_generate_without_temperature_is_reproducible(tiny_dir: Path) -> None:
    args = ("generate", "hello", "--model", str(tiny_dir), "--max-new-tokens", "8", "--temperature", "0")
    first, second = run(*args), run(*args)
    assert first.stdout == second.stdout
    assert "stopped after 8 tokens" in first.stderr


def test_generate_prints_no_half_of_a_document(tiny_dir: Path) -> None:
    whole = run("generate", "hi", "--model", str(tiny_dir), "--regex", '[{]"a": "[ab]*"[}]', "--max-new-tokens", "20")
    assert whole.exit_code == 0 and re.fullmatch(r'[{]"a": "[ab]*"[}]\n', whole.stdout)
    short = run("generate", "hi", "--model", str(tiny_dir), "--regex", "[ab]{30}", "--max-new-tokens", "9")
    assert (short.exit_code, short.stdout) == (1, "")
    assert "a budget of 9 tokens is too small: the shortest text takes 30" in short.stderr
    both = ("--regex", "(aaaa)+", "--choice", "a" * 12, "--prefix", "aaa")
    cut = run("generate", "hi", "--model", str(tiny_dir), *both, "--max-new-tokens", "13")
    assert (cut.exit_code, cut.stdout) == (0, "a" * 12 + "\n")


def test_generate_says_that_a_text_is_incomplete(tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Completion("[1, 2", [1, 2], "length", complete=False)
    monkeypatch.setattr(constrain.LLM, "generate", lambda *_, **__: cut)
    result = run("generate", "hi", "--model", str(tiny_dir))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "incomplete after 2 tokens; see --max-new-tokens: [1, 2" in result.stderr


def test_generate_says_that_a_text_is_a_loop(tiny_dir: Path) -> None:
    result = run("generate", "hi", "--model", str(tiny_dir), "--regex", "a{20}b*", "--max-new-tokens", "20")
    assert (result.exit_code, result.stdout) == (0, "a" * 20 + "\n")
    assert "stopped after 20 tokens in a loop; see --max-new-tokens" in result.stderr


def test_generate_names_what_does_not_compile(tiny_dir: Path) -> None:
    result = run("generate", "hello", "--model", str(tiny_dir), "--regex", "a(b")
    assert result.exit_code == 1
    message = "the regular expression does not compile: missing ), unterminated subpattern, at offset 1"
    assert result.stderr == f"Error: {message}\n"


@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("--grammar", b"\xff\xfe", "is not UTF-8 text"),
        ("--schema", b"\xff\xfe", "is not JSON"),
        ("--schema", b"[" * 100_000, "is not JSON"),
        ("--schema", b'"text"', "is not a JSON Schema: that is an object, not a str"),
        ("--schema", b"3", "is not a JSON Schema: that is an object, not an int"),
        ("--schema", b"null", "is not a JSON Schema: that is an object, not None"),
        ("--schema", b'{"type": "strin"}', "not a valid JSON Schema"),
    ],
)
def test_generate_names_files_that_cannot_be_used(tmp_path: Path, option: str, content: bytes, said: str) -> None:
    (tmp_path / "file").write_bytes(content)
    result = run("generate", "hello", option, str(tmp_path / "file"))
    assert isinstance(result.exception, SystemExit)
    assert said in result.stderr


def test_chat_names_what_does_not_compile_at_once(tiny_dir: Path) -> None:
    result = run("chat", "--model", str(tiny_dir), "--regex", "a(b")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "unterminated subpattern" in result.stderr


def test_chat_notes_that_a_model_was_not_trained_for_it() -> None:
    result = CliRunner().invoke(cli, ["chat"], input="/quit\n")
    assert result.exit_code == 0
    assert "note: this model has no chat template" in result.stderr


def test_tables_that_go_into_a_file_are_not_broken(tiny_dir: Path, tmp_path: Path) -> None:
    name = "a name that is as long as forty characters"
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"properties": {name: {"properties": {name: {"type": "integer"}}}}}))
    result = CliRunner().invoke(cli, ["check-schema", str(path), "--model", str(tiny_dir)], env={"COLUMNS": None})
    assert f"#/properties/{name}/properties/{name} " in result.stdout


def test_check_schema_lists_what_is_enforced(tiny_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"type": "object", "properties": {"n": {"type": "integer", "title": "N"}}}')
    result = run("check-schema", str(path), "--model", str(tiny_dir))
    assert result.exit_code == 0, result.output
    assert "enforced" in result.stdout
    assert "#/properties/n" in result.stdout


def test_check_schema_goes_node_by_node(tiny_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    schema = {
        "type": "object",
        "properties": {"n": {"minimum": 1, "type": "integer"}, "b": {"format": "nonsense"}},
        "additonalProperties": False,
    }
    path.write_text(json.dumps(schema))
    result = run("check-schema", str(path), "--model", str(tiny_dir))
    assert result.exit_code == 0, result.output
    assert "3 enforced, 1 narrowed, 2 ignored" in result.stdout
    assert result.stderr.startswith("warning: # (additonalProperties): unknown keyword; did you mean 'additionalProp")

    result = run("check-schema", str(path), "--json", "--model", str(tiny_dir))
    found = json.loads(result.stdout)
    assert found["supported"]
    assert [(row["pointer"], row["keyword"], row["status"]) for row in found["keywords"]] == [
        ("", "type", "enforced"),
        ("", "properties", "enforced"),
        ("", "additonalProperties", "ignored"),
        ("/properties/n", "minimum", "enforced"),
        ("/properties/n", "type", "narrowed"),
        ("/properties/b", "format", "ignored"),
    ]


def test_check_schema_names_what_is_not_supported(tiny_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"properties": {"n": {"type": "string", "pattern": "(a)\\\\1"}}}')
    result = run("check-schema", str(path), "--model", str(tiny_dir))
    assert result.exit_code == 1
    assert "not supported: #/properties/n" in result.stderr
    result = run("check-schema", str(path), "--json", "--model", str(tiny_dir))
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert (error["type"], error["pointer"], error["keyword"]) == ("UnsupportedSchema", "/properties/n", "pattern")
    assert run("check-schema", str(path), "--json", "--text", str(path)).exit_code == 2


def test_check_schema_says_where_a_document_departs(tiny_dir: Path, tmp_path: Path) -> None:
    schema, good, bad = tmp_path / "s.json", tmp_path / "good.json", tmp_path / "bad.json"
    schema.write_text('{"properties": {"n": {"type": "integer"}}, "additionalProperties": false}')
    good.write_text('{\n  "n": 12\n}\n')
    bad.write_text('{\n  "n": "12"\n}\n')
    result = run("check-schema", str(schema), "--text", str(good), "--model", str(tiny_dir))
    assert (result.exit_code, result.stdout) == (0, "accepted\n")
    result = run("check-schema", str(schema), "--text", str(bad), "--model", str(tiny_dir))
    assert result.exit_code == 1
    assert result.stdout.startswith('line 2, column 8 (byte 9): found `"`, expected ')
    assert result.stdout.endswith('  "n": "12"\n       ^\n')
    bad.write_bytes(b"\xff")
    result = run("check-schema", str(schema), "--text", str(bad), "--model", str(tiny_dir))
    assert result.exit_code == 1
    assert "is not UTF-8 text" in result.stderr


def test_check_schema_knows_quotes(tiny_dir: Path, tmp_path: Path) -> None:
    schema, record = tmp_path / "s.json", tmp_path / "record.json"
    quote = {"type": "string", "minLength": 90, "x-verbatim": {"source": "text"}}
    schema.write_text(json.dumps({"type": "object", "properties": {"name": quote}, "required": ["name"]}))
    result = run("check-schema", str(schema), "--model", str(tiny_dir))
    assert (result.exit_code, "#/properties/name" in result.stdout) == (0, True), result.output
    record.write_text(json.dumps({"name": "Ada " * 30}))
    result = run("check-schema", str(schema), "--text", str(record), "--model", str(tiny_dir))
    assert (result.exit_code, result.stdout) == (0, "accepted\n")


def test_plugins_lists_the_built_in_filters() -> None:
    result = run("plugins")
    assert result.exit_code == 0
    for name in ("json_schema", "regex", "grammar", "prefix", "select"):
        assert name in result.stdout


def test_info_describes_a_model(tiny_dir: Path) -> None:
    result = run("info", str(tiny_dir))
    assert result.exit_code == 0, result.output
    assert "LlamaForCausalLM" in result.stdout
    assert "256 tokens" in result.stdout
    assert "plain: a text that the record continues" in result.stdout
    assert "F32" in result.stdout
    assert re.search(r"0\.[1-9] MiB of weights in float32", result.stdout)
    assert re.search(r"ExLlamaV2Cache_Q4 .*[1-9][0-9,]* tokens", result.stdout)


def test_info_describes_the_parts_of_several_gpus(tiny_dir: Path) -> None:
    result = run("info", str(tiny_dir), "--tensor-parallel", "3")
    assert result.exit_code == 0, result.output
    assert [line.split()[1:8:2] for line in result.stdout.splitlines()[-4:-1]] == [
        ["0", "2", "2", "24"],
        ["1", "1", "1", "20"],
        ["2", "1", "1", "20"],
    ]


@pytest.mark.parametrize("option", [["--tensor-parallel"], ["--gpu-split", "4"]])
def test_models_may_be_split_over_gpus(tiny_dir: Path, option: list[str]) -> None:
    arguments = ["generate", "hello", "--model", str(tiny_dir), "--max-new-tokens", "8", "--temperature", "0"]
    assert run(*arguments, *option).stdout == run(*arguments).stdout
    wrong = run(*arguments, "--gpu-split", "4,much")
    assert wrong.exit_code == 2 and "'4,much' is not numbers separated by commas" in wrong.stderr


def test_info_says_that_weights_stay_in_eight_bits() -> None:
    from constrain.demo import model_dir

    if not multiplies_packed(torch.device("cpu"), torch.float32) or torch.cuda.is_available():
        pytest.skip("they are dequantised here")
    result = run("info", str(model_dir()))
    assert re.search(r"\b2[0-9]\.[0-9] MiB of weights in int8 and float32", result.stdout)


def test_info_names_what_is_wrong(tmp_path: Path) -> None:
    result = run("info", str(tmp_path))
    assert result.exit_code == 1
    assert "config.json" in result.stderr


def test_help_and_version_need_no_command() -> None:
    assert "check-schema" in run("--help").stdout
    assert re.search(r"\d+\.\d+\.\d+", run("--version").stdout)
    assert run("nonsense").exit_code == 2


@pytest.mark.parametrize("args", [["bench", "kernels", "--json"], ["extract", "letter.txt", "-o"]])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(args: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, [*args, str(tmp_path / "absent" / "out.json")])
    assert result.exit_code == 2 and "there is no folder" in result.stderr


def test_a_command_that_is_misspelled_is_named() -> None:
    result = CliRunner().invoke(cli, ["evluate"])
    assert "No such command 'evluate'. Did you mean 'evaluate'?" in result.stderr


def test_main_is_the_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["constrain", "--help"])
    monkeypatch.setattr("os.environ", {})
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == 0
    assert "Usage: constrain" in capsys.readouterr().out
    assert os.environ == {"OMP_WAIT_POLICY": "passive"}


def test_threads_are_loaded_with_their_environment() -> None:
    """Torch reads it once."""
    code = "import sys, constrain.cli; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@click.command()
def hello() -> None:
    """Say hello."""
    click.echo("hello from a plugin")


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points of other packages: a command, one that does not import, no command, and a taken name."""
    here = f"{__name__}"
    points = [
        EntryPoint("hello", f"{here}:hello", "constrain.commands"),
        EntryPoint("broken", "a_module_that_is_not_there:command", "constrain.commands"),
        EntryPoint("number", "math:pi", "constrain.commands"),
        EntryPoint("info", f"{here}:hello", "constrain.commands"),
    ]
    monkeypatch.setattr(cli, "added", {point.name: point for point in points})


def test_packages_add_commands(added: None) -> None:
    assert "hello" in run("--help").stdout
    assert run("hello").stdout == "hello from a plugin\n"


def test_a_broken_command_leaves_the_others_working(added: None) -> None:
    for name, why in (("broken", "ModuleNotFoundError"), ("number", "math:pi is not a click command")):
        result = run(name)
        assert result.exit_code == 1
        assert why in result.stderr
    assert run("--help").exit_code == 0


def test_the_names_of_built_in_commands_are_taken(added: None, tiny_dir: Path) -> None:
    assert "LlamaForCausalLM" in run("info", str(tiny_dir)).stdout
