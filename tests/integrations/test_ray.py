"""Ray: the records of workers are those of a single process, and a worker that dies loses and doubles nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pydantic import BaseModel, field_validator

import constrain
from constrain.cli import cli
from constrain.documents import Document
from constrain.errors import ArgumentError, RunError
from constrain.runs import LazyModel, Line, Progress, run_extraction

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'constrain-lm[ray]'")

from constrain.integrations.ray import Extractor, Workers, calls, workers  # noqa: E402  # they import Ray

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b"]}, "word": {"type": "string", "maxLength": 4}},
    "required": ["kind", "word"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> constrain.LLM:
    return constrain.load(tiny_dir)


def on_workers(tiny_dir: Path, number: int = 1) -> LazyModel:
    return LazyModel.open(tiny_dir, lambda: Workers("auto", tiny_dir, number=number))


def documents(number: int) -> list[Document]:
    return [Document("yes " * (index % 5 + 1) + str(index), f"{index}.txt") for index in range(number)]


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of an output, see :func:`parse`."""
    return [parse(line) for line in path.read_text().splitlines()]


def parse(text: str) -> dict[str, Any]:
    """A line without what depends on other requests: what is in the cache, and the last digits of probabilities."""
    line: dict[str, Any] = json.loads(text)
    line.get("usage", {}).pop("cached_tokens", None)
    return {**line, "confidence": sorted(line.get("confidence", ()))}


@pytest.mark.cluster
@pytest.mark.usefixtures("cluster")
def test_a_worker_that_is_killed_loses_and_doubles_nothing(
    llm: constrain.LLM, tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[calls.Calls] = []
    repeated: list[calls._Call] = []

    class Watched(calls.Calls):
        def __init__(self, target: Any, workers: Any) -> None:
            super().__init__(target, workers)
            watched.append(self)

        def _repeat(self, call: calls._Call, error: Exception) -> Any:
            repeated.append(call)
            return super()._repeat(call, error)

    def kill(progress: Progress, line: Line | None) -> None:
        if progress.records == 30:
            worker, _ = next(iter(watched[0]._running.values()))
            os.kill(ray.get(worker.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)

    monkeypatch.setattr(workers, "Calls", Watched)
    inputs = [*documents(199), Document(" ", "empty.txt")]
    progress = run_extraction(on_workers(tiny_dir, 2), SCHEMA, inputs, tmp_path / "ray.jsonl", on_line=kill)
    assert (progress.records, progress.failures) == (199, 1) and repeated
    run_extraction(llm, SCHEMA, inputs, tmp_path / "local.jsonl")
    assert read(tmp_path / "ray.jsonl") == read(tmp_path / "local.jsonl")


class Broken(Iterator[str]):
    """Inputs of which the second cannot be read."""

    taken = 0

    def __next__(self) -> str:
        self.taken += 1
        if self.taken == 2:
            raise OSError("the line is dead")
        return "hello"

    def is_ready(self) -> bool:
        return True

    def is_stopped(self) -> bool:
        return False


def test_nothing_is_read_after_an_error() -> None:
    documents = Broken()
    batches = calls._Batches(documents)
    call = batches.next(is_idle=True)
    assert call is not None and call.documents == ["hello"]
    assert batches.next(is_idle=True) is None and documents.taken == 2
    assert isinstance(batches.error, OSError)


class Fragile:
    """In place of a worker: a document kills it."""

    def __init__(self, schema: Any, model: Any, max_batch_size: Any, options: Any) -> None: ...

    def extract(self, documents: list[Document]) -> list[Any]:
        if any(each.text == "poison" for each in documents):
            os.kill(os.getpid(), signal.SIGKILL)
        return [constrain.Extraction("a", "a", '"a"', [], "stop", at, each) for at, each in enumerate(documents)]


@pytest.mark.cluster
@pytest.mark.usefixtures("cluster")
def test_a_document_that_kills_its_workers_fails(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(workers, "_Worker", Fragile)
    inputs = [*documents(40), Document("poison", "poison.txt"), *documents(80)[40:]]
    run_extraction(on_workers(tiny_dir, 2), {"enum": ["a"]}, inputs, tmp_path / "out.jsonl")
    lines = {line["source"]: line for line in read(tmp_path / "out.jsonl")}
    assert len(lines) == 81 and lines["poison.txt"]["error"]["type"] == "ActorUnavailableError"
    assert sum("record" in line for line in lines.values()) > 70


class Shouted(BaseModel):
    """A type that the workers do not know."""

    word: str

    @field_validator("word")
    @classmethod
    def louder(cls, word: str) -> str:
        if len(word) % 2:
            raise ValueError("it is odd")
        return f"{word}!"


@pytest.mark.cluster
@pytest.mark.usefixtures("cluster")
def test_types_are_those_of_this_process(llm: constrain.LLM, tiny_dir: Path, tmp_path: Path) -> None:
    inputs = documents(8)
    for name, model in (("ray", on_workers(tiny_dir)), ("local", llm)):
        run_extraction(model, Shouted, inputs, tmp_path / f"{name}.jsonl", max_new_tokens=20)
    local = read(tmp_path / "local.jsonl")
    assert [each["key"] for each in read(tmp_path / "ray.jsonl")] == [each["key"] for each in local]
    assert [each.get("record") for each in read(tmp_path / "ray.jsonl")] == [each.get("record") for each in local]
    assert all(each["record"]["word"].endswith("!") for each in local if "record" in each)


@pytest.mark.cluster
@pytest.mark.usefixtures("cluster")
def test_rows_of_a_dataset(llm: constrain.LLM, tiny_dir: Path, tmp_path: Path) -> None:
    import ray.data

    run_extraction(llm, SCHEMA, [*documents(20), Document(" ", "empty.txt")], tmp_path / "local.jsonl")
    local = {line["key"]: line for line in read(tmp_path / "local.jsonl")}
    texts: list[dict[str, Any]] = [
        {"text": each.text, "name": each.source, "tags": ["a"] * (at % 3), "image": np.full((2, at % 2 + 1), at)}
        for at, each in enumerate([*documents(20), Document(" ", "empty.txt")])
    ]
    rows = ray.data.from_items(texts).map_batches(
        Extractor,
        fn_constructor_kwargs={"schema": SCHEMA, "model": tiny_dir, "source_column": "name"},
        compute=ray.data.ActorPoolStrategy(size=1),
        batch_format="pyarrow",
        batch_size=8,
    )
    rows.write_parquet(tmp_path / "rows")
    found = ray.data.read_parquet(tmp_path / "rows").take_all()
    assert {row["key"] for row in found} == set(local)
    given = {row["name"]: row for row in texts}
    for row in found:
        line = parse(row["line"])
        assert line == local[row["key"]] and row["failed"] == ("error" in line) and row["name"] == line["source"]
        assert row["tags"] == given[row["name"]]["tags"] and np.array_equal(row["image"], given[row["name"]]["image"])


@pytest.mark.cluster
@pytest.mark.usefixtures("cluster")
def test_the_command(tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "one.txt").write_text("yes, please")
    args = ["extract", "--schema", "schema.json", "one.txt", "--model", str(tiny_dir)]
    results = [CliRunner().invoke(cli, [*args, *more]) for more in ((), ("--ray", "auto", "--workers", "1"))]
    local, remote = (json.loads(result.stdout) for result in results)
    assert remote["record"] == local["record"] and remote["key"] == local["key"]
    filtered = CliRunner().invoke(cli, [*args, "--ray", "auto", "--filter", 'regex:pattern=\\{"kind": "b".*'])
    assert json.loads(filtered.stdout)["record"]["kind"] == "b"


@pytest.mark.cluster
@pytest.mark.usefixtures("cluster")
def test_workers_that_cannot_start_end_the_run(tiny_dir: Path, tmp_path: Path) -> None:
    model = LazyModel.open(tiny_dir, lambda: Workers("auto", tmp_path / "nowhere"))
    with pytest.raises(RunError, match="a worker cannot be started"):
        run_extraction(model, SCHEMA, documents(1), tmp_path / "out.jsonl")


# In this process


@pytest.mark.parametrize(
    ("nodes", "number", "expected"),
    [
        ([{"CPU": 8}], None, (1, {"num_cpus": 8})),
        ([{"CPU": 8}, {"CPU": 4}, {}], None, (2, {"num_cpus": 4})),
        ([{"CPU": 8}, {"CPU": 8}], 3, (3, {"num_cpus": 4})),
        ([{"CPU": 2}], 5, (2, {"num_cpus": 1})),
        ([{"CPU": 8, "GPU": 2}, {"CPU": 8}], None, (2, {"num_gpus": 1})),
        ([{"CPU": 8, "GPU": 2}], 1, (1, {"num_gpus": 1})),
    ],
)
def test_workers_fit_on_the_machines(
    nodes: list[dict[str, int]], number: int | None, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": each} for each in nodes])
    assert workers._resources(number) == expected


def test_a_cluster_without_cpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 0}}])
    with pytest.raises(RunError, match="no machine with a CPU"):
        workers._resources(None)


def test_workers_are_those_of_ray(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    args = ["extract", "--schema", str(tmp_path / "schema.json"), "one.txt", "--workers", "2"]
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 2 and "--workers needs --ray" in result.stderr


def test_a_row_that_is_no_text_fails_alone(tiny_dir: Path) -> None:
    rows = Extractor(SCHEMA, model=tiny_dir)({"text": ["yes", None, "yes"], "id": [1, 2, 3]})
    assert rows["failed"].tolist() == [False, True, False] and rows["id"].tolist() == [1, 2, 3]
    assert json.loads(rows["line"][1])["error"]["message"] == "it is not a text (NoneType)"


@pytest.mark.parametrize("columns", [{"column": "body"}, {"source_column": "body"}])
def test_a_missing_column_is_named(columns: dict[str, str], tiny_dir: Path) -> None:
    with pytest.raises(ArgumentError, match="the rows have no column 'body', but text, id"):
        Extractor(SCHEMA, model=tiny_dir, **columns)({"text": ["yes"], "id": [1]})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["key", "line", "failed"])
def test_a_column_that_the_results_would_replace_is_named(name: str, tiny_dir: Path) -> None:
    with pytest.raises(ArgumentError, match=f"would replace columns of the rows, which need another name: '{name}'"):
        Extractor(SCHEMA, model=tiny_dir)({"text": ["yes"], name: [1]})


def test_a_table_keeps_its_types(tiny_dir: Path) -> None:
    rows = [{"text": "yes", "id": 1, "tags": ["a"]}, {"text": "no", "id": None, "tags": []}, {"text": "yes", "id": 2}]
    extractor = Extractor(SCHEMA, model=tiny_dir, source_column="id")
    batch = pa.Table.from_pylist(rows)
    found = extractor(batch)
    assert found.drop(["key", "line", "failed"]).equals(batch)
    assert [json.loads(line)["source"] for line in found["line"].to_pylist()] == ["1", None, "2"]
    alone = extractor(batch.slice(2))
    assert alone["key"].to_pylist() == found["key"].to_pylist()[2:]
    rest = Extractor(SCHEMA, model=tiny_dir, source_column="id", done=found["key"].to_pylist())(batch)
    assert rest.num_rows == 0 and rest.schema == found.schema


def test_values_of_lists_are_kept(tiny_dir: Path) -> None:
    tags, texts = [["a"], ["b", "c"], []], ["yes", 1, "no\ud800"]
    rows = Extractor(SCHEMA, model=tiny_dir)({"text": texts, "tags": tags})
    assert rows["tags"].tolist() == tags and rows["text"].tolist() == texts
    assert rows["failed"].tolist() == [False, True, True]


def test_rows_that_an_earlier_run_has_done_are_left_out(tiny_dir: Path) -> None:
    batch = {"text": ["yes", "no", "yes, please"]}
    keys = Extractor(SCHEMA, model=tiny_dir)(batch)["key"]
    again = Extractor(SCHEMA, model=tiny_dir, done=keys[:2])
    assert again(batch)["key"].tolist() == [keys[2]]
    assert again({"text": ["no"]})["line"].tolist() == []
