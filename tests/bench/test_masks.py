"""``constrain bench masks``: measuring, judging, surviving what engines do, and adding up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer

from constrain.bench.cases import Case, Instance, case_files, read_cases
from constrain.bench.engines import ENGINES, Tokens
from constrain.bench.masks import run_masks, summaries, token_table
from constrain.bench.measure import Measurement, Verdict
from constrain.bench.summary import Summary, Times, compiled_by_all
from constrain.bench.worker import Limits, Worker
from constrain.cli import cli
from constrain.demo import model_dir
from constrain.errors import BenchmarkError

LIMITS = Limits(seconds=10, memory=8 << 30)
CASES = {
    "integers": {
        "schema": {"type": "integer"},
        "tests": [{"data": 12, "valid": True}, {"data": "12", "valid": False}],
    },
    "objects": {
        "schema": {"type": "object", "required": ["a"], "additionalProperties": False, "properties": {"a": {}}},
        "tests": [{"data": {"a": [None, "é"]}, "valid": True}, {"data": {"b": 1}, "valid": False}],
    },
    "nothing": {"schema": False, "tests": [{"data": 1, "valid": False}]},
    "not regular": {"schema": {"pattern": r"(a)\1"}, "tests": []},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases")
    for name, case in CASES.items():
        (folder / f"{name}.json").write_text(json.dumps(case))
    return folder


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens(model_dir(), [b"a", b""], [1])


# ---- Cases.


def test_cases_are_read_in_order(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model_dir() / "tokenizer.json"))
    assert [file.stem for file in case_files(folder)] == ["integers", "not regular", "nothing", "objects"]
    files = case_files(folder, stride=2)
    cases = list(read_cases(files, tokenizer))
    assert [case.name for case in cases] == ["integers.json", "nothing.json"]
    assert [instance.valid for instance in cases[0].instances] == [True, False]
    assert tokenizer.decode(cases[0].instances[1].tokens) == '"12"'


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": {}}', '{"schema": {}, "tests": [{"data": 1}]}'])
def test_other_files_are_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    tokenizer = Tokenizer.from_file(str(model_dir() / "tokenizer.json"))
    with pytest.raises(BenchmarkError, match=r"x\.json is no case"):
        list(read_cases(case_files(tmp_path), tokenizer))


def test_a_folder_without_cases(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="holds no cases"):
        case_files(tmp_path)


# ---- Workers.


@pytest.fixture(scope="module")
def fakes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        patch.setitem(ENGINES, "fake", "fake_engines:Fake")
        patch.setitem(ENGINES, "missing", "fake_engines:Missing")
        patch.setitem(ENGINES, "nowhere", "no_such_module:Nowhere")
        yield


@pytest.fixture(scope="module")
def fake(fakes: None, tokens: Tokens) -> Iterator[Worker]:
    worker = Worker("fake", tokens, Limits(seconds=5, memory=8 << 30))
    yield worker
    worker.stop()


def case(schema: str, *instances: tuple[int, bool]) -> Case:
    return Case(schema, schema, [Instance([0] * length, valid) for length, valid in instances])


@pytest.mark.parametrize(
    "asked, verdict, reason",
    [
        (case("ok", (1, True), (3, True), (4, False)), Verdict.PASSED, ""),
        (case("ok", (4, True)), Verdict.REJECTED, "document 0"),
        (case("ok", (1, True), (2, False), (4, True)), Verdict.ACCEPTED, "document 1"),
        (case("no end", (1, True)), Verdict.REJECTED, "document 0"),
        (case("nothing allowed", (1, True)), Verdict.REJECTED, "document 0"),
        (case("nothing", (1, False)), Verdict.PASSED, ""),
        (case("nothing", (1, True)), Verdict.REJECTED, "Unsatisfiable: nothing is valid"),
        (case("refuse", (1, True)), Verdict.REFUSED, "ValueError: no such thing"),
        (case("stumble", (1, True)), Verdict.CRASHED, "RuntimeError: stumbled"),
        (case("eat"), Verdict.OUT_OF_MEMORY, "MemoryError: too much"),
        (case("eat really"), Verdict.OUT_OF_MEMORY, "MemoryError: "),
        (case("die"), Verdict.CRASHED, "the process ended with code 7"),
        (case("ok", (2, True)), Verdict.PASSED, ""),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_verdicts(fake: Worker, asked: Case, verdict: Verdict, reason: str) -> None:
    result = fake.run(asked)
    assert (result.verdict, result.reason) == (verdict, reason)


def test_every_step_is_timed(fake: Worker) -> None:
    result = fake.run(case("ok", (2, True), (5, False)))
    assert len(result.masks) == 6
    assert len(result.commits) == 6
    assert result.compile is not None
    assert result.first_mask is not None
    assert result.first_mask > result.compile >= 0
    assert result.counters == {"steps": 4}
    assert fake.resident > 1 << 20


def test_an_engine_that_takes_too_long_is_stopped(fakes: None, tokens: Tokens) -> None:
    worker = Worker("fake", tokens, Limits(seconds=0.3, memory=8 << 30))
    try:
        assert worker.run(case("sleep")).verdict is Verdict.TIMED_OUT
        assert worker.run(case("ok", (1, True))).verdict is Verdict.PASSED
    finally:
        worker.stop()


@pytest.mark.parametrize("name", ["missing", "nowhere"])
def test_an_engine_that_is_not_there_is_named(fakes: None, tokens: Tokens, name: str) -> None:
    with pytest.raises(BenchmarkError, match=rf"the engine {name} cannot be set up: \w+Error: "):
        run_masks([name], tokens, [], LIMITS)


# ---- Figures.


def test_percentiles_are_by_the_nearest_rank() -> None:
    times = Times.of(n * 1000 for n in range(1, 1001))
    assert times == Times(1000, 500.5, {"p50": 501.0, "p90": 901.0, "p99": 991.0, "p99.9": 1000.0}, 1000.0)
    assert Times.of([]) is None


def test_a_summary_adds_up() -> None:
    results = [
        Measurement(compile=1000, first_mask=3000, masks=[1000, 3000], commits=[5000], counters={"a": 1}),
        Measurement(Verdict.REFUSED, "x"),
        Measurement(compile=3000, counters={"a": 2, "b": 1}),
    ]
    summary = Summary.of(results)
    assert summary.cases == 3
    assert (summary.verdicts["passed"], summary.verdicts["refused the schema"], summary.verdicts["crashed"]) == (
        2,
        1,
        0,
    )
    assert summary.compile is not None
    assert (summary.compile.count, summary.compile.mean, summary.compile.max) == (2, 2.0, 3.0)
    assert summary.mask is not None
    assert summary.mask.mean == 2.0
    assert summary.counters == {"a": 3, "b": 1}
    assert json.dumps(summary.json())


def test_engines_are_compared_on_what_all_of_them_compiled() -> None:
    results = {
        "one": {"x": Measurement(compile=1), "y": Measurement(compile=1), "z": Measurement()},
        "two": {"x": Measurement(), "y": Measurement(compile=1), "z": Measurement(compile=1)},
    }
    assert compiled_by_all(results) == ["y"]


def test_engines_take_turns(fakes: None, folder: Path) -> None:
    tokens = token_table(model_dir())
    tokenizer = Tokenizer.from_file(str(model_dir() / "tokenizer.json"))
    cases = list(read_cases(case_files(folder), tokenizer))
    figures: dict[str, Any] = summaries(run_masks(["constrain", "fake"], tokens, cases, LIMITS))
    ours = figures["constrain"]
    assert {name: count for name, count in ours["all"]["verdicts"].items() if count} == {
        "passed": 3,
        "refused the schema": 1,
    }
    assert list(ours["failures"]) == ["not regular.json"]
    assert ours["all"]["counters"]["rows_built"] > 0
    assert ours["set_up"]["seconds"] > 0
    assert ours["compiled_by_all"]["cases"] == 2
    assert figures["fake"]["all"]["verdicts"]["passed"] < 4


# ---- The command.


def test_the_command_prints_a_table_and_writes_all_figures(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    arguments = ["bench", "masks", str(folder), "--tokenizer", str(model_dir()), "--json", str(out)]
    result = CliRunner().invoke(cli, arguments, env={"COLUMNS": "150"})
    assert result.exit_code == 0, result.output
    assert "4 cases" in result.stdout
    assert "mask: times" in result.stdout
    assert "masks_built" in result.stdout
    assert json.loads(out.read_text())["constrain"]["all"]["verdicts"]["passed"] == 3


def test_the_command_names_mistakes(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["bench", "masks", str(tmp_path), "--tokenizer", str(model_dir())])
    assert result.exit_code == 1
    assert "holds no cases" in result.stderr


@pytest.mark.parametrize("name", sorted({*ENGINES} - {"constrain"}))
def test_peers(name: str, folder: Path) -> None:
    pytest.importorskip({"lm-format-enforcer": "lmformatenforcer"}.get(name, name.replace("-", "_")))
    tokenizer = Tokenizer.from_file(str(model_dir() / "tokenizer.json"))
    cases = list(read_cases([folder / "integers.json"], tokenizer))
    outcomes = run_masks([name], token_table(model_dir()), cases, LIMITS)
    assert outcomes[name].results["integers.json"].verdict is Verdict.PASSED
