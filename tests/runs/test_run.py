"""A run does what is missing, and only that; failures are lines; errors and Ctrl-C end it in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from stub_extraction import SETTINGS, Result, documents, extract, run

from constrain.documents import Document, Page, PartKind, Source
from constrain.errors import ArgumentError, DocumentError, RunError
from constrain.extract.target import Target
from constrain.runs import Journal, Progress, Stream, sample


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def extracted(path: Path, inputs: Any, **options: Any) -> Progress:
    with Journal(path) as journal:
        return run(journal, inputs, **options).progress


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_lines_are_in_the_order_of_the_documents(path: Path) -> None:
    extracted(path, documents(40))
    assert [line["source"] for line in read(path)] == [f"{number}.txt" for number in range(40)]
    assert read(path)[7] == {
        "key": read(path)[7]["key"],
        "source": "7.txt",
        "record": {"text": "document 7 – \u2028"},
        "usage": {"prompt_tokens": 10, "cached_tokens": 4, "output_tokens": 3},
        "finish_reason": "stop",
    }


def test_a_second_run_does_what_is_missing(path: Path) -> None:
    seen: list[str | None] = []

    def watched(given: Iterator[Document]) -> Any:
        for result in extract(given):
            seen.append(result.document.source)
            yield result

    extracted(path, documents(10)[::2])
    progress = extracted(path, documents(10), extract=watched)
    assert sorted(map(str, seen)) == [f"{number}.txt" for number in (1, 3, 5, 7, 9)]
    assert (progress.records, progress.present, progress.documents) == (5, 5, 10)
    before = path.read_bytes()
    assert extracted(path, documents(10)).present == 10
    assert path.read_bytes() == before
    assert [line["source"] for line in read(path)] == [f"{number}.txt" for number in range(10)]


def test_lines_of_other_settings_are_counted(path: Path) -> None:
    assert extracted(path, documents(3), settings="f" * 16).of_other_settings == 0
    assert extracted(path, [*documents(2), Document("fail", "bad.txt")]).of_other_settings == 3
    assert extracted(path, documents(4), settings="f" * 16).of_other_settings == 3
    with Stream(BytesIO()) as stream:
        assert run(stream, documents(2)).progress.of_other_settings == 0


@pytest.mark.parametrize("change", ["text", "source", "settings"])
def test_other_work_has_another_line(path: Path, change: str) -> None:
    one = Document("text", "a.txt")
    extracted(path, [one])
    other = replace(one, **{change: "other"}) if change != "settings" else one
    extracted(path, [other], settings="f" * 16 if change == "settings" else SETTINGS)
    assert len(read(path)) == 2


def test_equal_documents_have_a_line_each_unless_they_have_no_source(path: Path) -> None:
    extracted(path, [Document("text", "a.txt"), Document("text", "b.txt"), "text", "text", Document("text", "a.txt")])
    assert [line["source"] for line in read(path)] == ["a.txt", "b.txt", None]


def test_the_tokens_are_counted(path: Path) -> None:
    progress = extracted(path, documents(10))
    assert (progress.prompt_tokens, progress.cached_tokens, progress.output_tokens) == (100, 40, 30)
    assert extracted(path, documents(10)).output_tokens == 0


class Shouted(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def louder(cls, text: str) -> str:
        return text.upper()


def test_the_record_is_the_validated_value(path: Path) -> None:
    def validated(given: Iterator[Document]) -> Any:
        for result in extract(given):
            yield Validated(result.index, result.document)

    extracted(path, ["quiet"], extract=validated, target=Target.of(Shouted))
    assert read(path)[0]["record"] == {"text": "QUIET"}


class Validated(Result):
    @property
    def value(self) -> Any:
        return Shouted(text=self.document.text)


# Failures


def unreadable(name: str) -> Source:
    def read() -> Document:
        raise DocumentError(name, "it is broken")

    return Source(name, read)


def test_failures_are_lines(path: Path) -> None:
    progress = extracted(path, [Document("fail", "a.txt"), unreadable("b.pdf"), Document("text", "c.txt")])
    a, b, c = read(path)
    assert (a["source"], a["error"]) == ("a.txt", {"type": "ExtractionError", "message": "it says so"})
    assert (b["source"], b["error"]) == ("b.pdf", {"type": "DocumentError", "message": "it is broken"})
    assert c["record"] and (progress.records, progress.failures) == (1, 2)


def test_failures_stay_until_they_are_to_be_tried_again(path: Path) -> None:
    inputs = [Document("fail", "a.txt"), unreadable("b.pdf"), Document("text", "c.txt")]
    extracted(path, inputs)
    before = path.read_bytes()
    progress = extracted(path, inputs)
    assert (progress.failed_before, progress.all_failures, progress.present) == (2, 2, 1)
    assert path.read_bytes() == before
    assert extracted(path, inputs, retry_failed=True).failures == 2
    assert path.read_bytes() == before  # they failed in the same way, and have a line each


def test_a_document_that_is_repaired_is_extracted_and_its_failure_goes(path: Path) -> None:
    extracted(path, [Document("fail", "a.txt"), unreadable("b.txt")])
    extracted(path, [Document("text", "a.txt"), Source("b.txt", lambda: Document("text", "b.txt"))])
    assert [(line["source"], "record" in line) for line in read(path)] == [("a.txt", True), ("b.txt", True)]


def test_a_success_replaces_the_failure(path: Path) -> None:
    inputs = documents(5)
    extracted(path, inputs, extract=lambda given: (failed(result) for result in extract(given)))
    assert ["error" in line for line in read(path)] == [True] * 5
    assert extracted(path, inputs, retry_failed=True).records == 5
    assert ["record" in line for line in read(path)] == [True] * 5


def failed(result: Result, error: Exception | None = None) -> Result:
    return replace(result, error=error or DocumentError("", "for a moment"))


def test_unexpected_errors_are_failures_but_many_in_a_row_end_the_run(path: Path) -> None:
    def crash(given: Iterator[Document]) -> Any:
        for result in extract(given):
            yield result if result.index < 15 else failed(result, ValueError("crashed"))

    with pytest.raises(RunError, match="10 documents in a row failed unexpectedly, the last by ValueError: crashed"):
        extracted(path, documents(100), extract=crash)
    assert 10 <= ["error" in line for line in read(path)].count(True) < 20
    assert extracted(path, documents(100), retry_failed=True).all_failures == 0


def test_errors_of_documents_do_not_end_the_run(path: Path) -> None:
    assert extracted(path, [Document("fail", f"{number}.txt") for number in range(50)]).failures == 50


# Its end


def test_a_run_that_is_stopped_finishes_what_is_in_progress(path: Path) -> None:
    done: list[int] = []
    progress = extracted(
        path, documents(100), stop=lambda: len(done) >= 10, on_line=lambda progress, line: done.append(1)
    )
    assert progress.is_stopped
    assert progress.records == len(read(path)) == 17  # 10 were done, and 7 in progress
    assert not extracted(path, documents(100)).is_stopped
    assert len(read(path)) == 100


def test_a_run_that_is_stopped_between_two_documents_says_so(path: Path) -> None:
    done: list[int] = []

    def one_by_one(given: Any) -> Any:
        while not given.is_stopped():
            (result,) = extract(iter([next(given)]))
            yield replace(result, index=len(done))

    progress = extracted(
        path, documents(100), extract=one_by_one, stop=lambda: len(done) >= 10, on_line=lambda *_: done.append(1)
    )
    assert progress.is_stopped and progress.records == 10


def test_an_interrupt_leaves_what_is_done(path: Path) -> None:
    def interrupted(progress: Progress, line: Any) -> None:
        if progress.records == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extracted(path, documents(100), on_line=interrupted)
    assert len(read(path)) == 10
    assert extracted(path, documents(100)).present == 10


def test_the_end_of_a_run_that_drops_documents_is_told(path: Path) -> None:
    def dropping(given: Any) -> Any:
        for result in extract(given):
            if result.index < 5:
                yield result

    assert extracted(path, documents(10), extract=dropping).is_stopped
    assert not extracted(path, documents(10)).is_stopped
    assert [line["source"] for line in read(path)] == [f"{number}.txt" for number in range(10)]


def test_nothing_is_extracted_where_nothing_is_missing(path: Path) -> None:
    extracted(path, [*documents(3), unreadable("a.pdf")])
    inputs = [*documents(3), unreadable("a.pdf"), unreadable("b.pdf")]
    progress = extracted(path, inputs, extract=lambda given: pytest.fail("extracts"))
    assert (progress.present, progress.failed_before, progress.failures) == (3, 1, 1)


def test_an_input_that_breaks_loses_nothing_that_came_before(path: Path) -> None:
    def broken() -> Iterator[Document]:
        yield from documents(20)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        extracted(path, broken())
    assert extracted(path, documents(20)).present >= 12  # all but those in progress


def test_an_input_that_breaks_is_an_error_where_nothing_before_it_is_missing(path: Path) -> None:
    def broken() -> Iterator[Any]:
        yield from documents(3)
        yield unreadable("a.pdf")
        raise OSError("the disk is gone")

    extracted(path, documents(3))
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            extracted(path, broken())
    assert [line["source"] for line in read(path)] == ["0.txt", "1.txt", "2.txt", "a.pdf"]


@pytest.mark.parametrize(
    ("inputs", "each", "reason"), [([5], None, "the text of a document must be a str"), (["a"], "line", "each must be")]
)
def test_inputs_that_are_no_documents_are_refused(inputs: Any, each: Any, reason: str, path: Path) -> None:
    with pytest.raises(ArgumentError, match=reason):
        extracted(path, inputs, each=each)


def test_texts_with_half_a_character_fail_alone(path: Path) -> None:
    """As texts have that were cut within an emoji."""
    extracted(path, ["one", "two \ud83d", "three \ud83d", "four"])
    assert ["error" in line for line in read(path)] == [False, True, True, False]


def test_an_output_that_cannot_take_failures_is_an_error(path: Path) -> None:
    class Full(Journal):
        def append(self, line: Any, position: int = 0) -> None:
            raise RunError("the disk is full")

    with Full(path) as journal, pytest.raises(RunError, match="the disk is full"):
        run(journal, [unreadable("a.pdf")])


def test_progress_is_told_for_each_document(path: Path) -> None:
    extracted(path, documents(3))
    told: list[tuple[int, bool]] = []
    inputs = [*documents(6), unreadable("a.pdf")]
    extracted(path, inputs, on_line=lambda progress, line: told.append((progress.documents, line is None)))
    assert told == [(1, True), (2, True), (3, True), (4, False), (5, False), (6, False), (7, False)]


def test_a_stream_has_the_order_of_the_documents() -> None:
    file = BytesIO()
    run(Stream(file), [*documents(20), Document("fail", "a.txt"), unreadable("b.txt"), Document("text", "c.txt")])
    sources = [json.loads(line)["source"] for line in file.getvalue().splitlines()]
    assert sources == [*(f"{number}.txt" for number in range(20)), "a.txt", "b.txt", "c.txt"]


def test_a_stream_has_a_line_as_soon_as_those_before_it() -> None:
    file, found = BytesIO(), list[int]()
    stream = Stream(file)
    for position in (1, 0, 3, 2):
        stream.append({"source": str(position)}, position)
        found.append(len(file.getvalue().splitlines()))
    assert found == [0, 2, 2, 4]


def test_a_stream_has_what_was_done_before_an_end() -> None:
    done: list[int] = []
    file = BytesIO()
    run(Stream(file), documents(100), stop=lambda: len(done) >= 10, on_line=lambda progress, line: done.append(1))
    assert [json.loads(line)["source"] for line in file.getvalue().splitlines()] == [f"{i}.txt" for i in range(17)]


class Broken(BytesIO):
    def write(self, data: Any) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_pipe_that_nobody_reads_is_an_error() -> None:
    with pytest.raises(RunError, match="nobody reads the output any more"):
        run(Stream(Broken()), documents(3))


# Samples


def test_samples_are_random_and_the_same_for_a_seed() -> None:
    first = sample(iter(range(1000)), 10, seed=1)
    assert first == sorted(set(first)) == sample(range(1000), 10, seed=1)
    assert first != sample(range(1000), 10, seed=2)
    assert sample(range(5), 10) == list(range(5))
    counts = [sum(item in sample(range(10), 3, seed) for seed in range(1000)) for item in range(10)]
    assert all(240 < count < 360 for count in counts)


# Parts


def test_each_part_has_a_line(path: Path) -> None:
    text = "first\nstill first\n\nsecond"
    progress = extracted(path, [Document(text, "a.txt"), Document("other", "b.txt")], each="paragraph")
    assert progress.documents == 3
    parts = [(line["source"], line["part"], line["record"]["text"]) for line in read(path)]
    assert parts == [
        ("a.txt", {"paragraph": 1, "span": [0, 17]}, "first\nstill first"),
        ("a.txt", {"paragraph": 2, "span": [19, 25]}, "second"),
        ("b.txt", {"paragraph": 1, "span": [0, 5]}, "other"),
    ]
    assert extracted(path, [Document(text, "a.txt")], each="paragraph").present == 2


def test_scanned_pages_are_told(path: Path) -> None:
    pages = (Page(1, 0, 5), Page(2, 7, 7), Page(3, 9, 14))
    document = Document("first\n\n\n\nthird", "a.pdf", {"pages_without_text": [2]}, pages)
    extracted(path, [document])
    assert read(path)[0]["pages_without_text"] == [2]
    progress = extracted(path, [document], each="page")
    assert (progress.records, progress.failures) == (2, 1)
    first, second, third = read(path)[1:]
    assert [line["part"]["page"] for line in (first, second, third)] == [1, 2, 3]
    assert second["error"]["message"].startswith("the page has no text, only images") and "record" in third
    assert "pages_without_text" not in first


@pytest.mark.parametrize("each", ["paragraph", "row"])
def test_scanned_pages_are_failures_beside_parts_of_other_pages(path: Path, each: PartKind) -> None:
    pages = (Page(1, 0, 5), Page(2, 7, 7), Page(3, 9, 14))
    document = Document("first\n\n\n\nthird", "a.pdf", {"pages_without_text": [2]}, pages)
    progress = extracted(path, [document], each=each)
    assert (progress.records, progress.failures) == (2, 1)
    first, second, third = read(path)
    assert (first["part"][each], second["part"], third["part"][each]) == (1, {"page": 2}, 2)
    assert extracted(path, [document], each=each).documents == 3


def test_a_document_without_parts_is_a_failure(path: Path) -> None:
    extracted(path, [Document(" ", "a.txt")], each="page")
    assert read(path)[0]["error"] == {"type": "ExtractionError", "message": "the document is empty"}


def test_failures_of_parts_and_wholes_go_when_they_are_repaired(path: Path) -> None:
    extracted(path, [Document("fail\ngood", "a.txt"), unreadable("b.txt")], each="row")
    assert ["error" in line for line in read(path)] == [True, False, True]
    extracted(path, [Document("longer\ngood", "a.txt"), Document("good", "b.txt")], each="row")
    assert not any("error" in line for line in read(path))
