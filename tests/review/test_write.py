"""The file of a review: what is in it, and what is left out to keep it small."""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from fpdf import FPDF
from review_corpus import confidence, line_of, text_line, write_lines

from constrain.documents import read
from constrain.errors import RunError
from constrain.review import write_review
from constrain.review.page import page_script
from constrain.review.utf16 import Utf16Offsets
from constrain.runs import Line

BLOCK = re.compile(r'<script type="application/gzip" id="([\w-]+)">([^<]*)</script>')


def blocks(page: Path) -> dict[str, Any]:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return {name: json.loads(gzip.decompress(base64.b64decode(content))) for name, content in found}


def details(page: Path) -> dict[str, Any]:
    """Return the data of each document in the page, by its key."""
    parts = [block for name, block in blocks(page).items() if name.startswith("documents-")]
    return {detail["key"]: detail for part in parts for detail in part}


def noise(number: int, words: int = 300) -> str:
    draw = random.Random(number)
    return " ".join(f"{draw.getrandbits(40):x}" for _ in range(words))


def pdf_line(path: Path, number: int, *, pages: int = 1, **members: Any) -> Line:
    pdf = FPDF(unit="pt")
    pdf.set_font("helvetica", size=11)
    for page in range(pages):
        pdf.add_page()
        pdf.write(14, noise(number + page))
    pdf.output(str(path))
    text = read(path).text
    return line_of(str(path), text, **{"record": {"x": text[:4]}, "spans": {"/x": (0, 4)}, **members})


# Content


def test_offsets_are_those_of_utf16() -> None:
    text = "a😀e\u0301𝔘語z"
    offsets = Utf16Offsets(text)
    for end in range(len(text) + 1):
        assert offsets.at(end) == len(text[:end].encode("utf-16-le")) // 2


def test_spans_and_texts_are_in_the_page(tmp_path: Path) -> None:
    line = text_line(tmp_path / "a.txt", "😀 {/name=Zoë 👩} 😀")
    write_review(write_lines(tmp_path / "r.jsonl", [line]), tmp_path / "r.html")
    detail = details(tmp_path / "r.html")[line["key"]]
    start, end = detail["spans"]["/name"]
    assert detail["text"].encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le") == "Zoë 👩"
    assert detail["record"] == {"name": "Zoë 👩"}


def test_the_index_has_the_least_probability_of_each_field(tmp_path: Path) -> None:
    sure = {"/items/0/n": confidence(0.9), "/items/1/n": confidence(0.4), "/none": confidence(0.7)}
    line = text_line(tmp_path / "a.txt", "{/items/0/n=a}{/items/1/n=b}", {"/none": None}, confidence=sure)
    write_review(write_lines(tmp_path / "r.jsonl", [line]), tmp_path / "r.html")
    index = blocks(tmp_path / "r.html")["index"]
    assert index["fields"] == [
        {"field": "/items/*/n", "kind": "text", "hasSpans": True},
        {"field": "/none", "kind": None, "hasSpans": False},
    ]
    (entry,) = index["documents"]
    assert entry["least"] == 0.4
    assert entry["fields"] == {"0": [2, 0.4], "1": [0, 0.7]}


def test_the_same_records_make_the_same_page(tmp_path: Path) -> None:
    records = write_lines(tmp_path / "r.jsonl", [text_line(tmp_path / "a.txt", "{/x=1}")])
    for name in ("one.html", "two.html"):
        write_review(records, tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_a_document_has_another_identity_if_its_record_is_another(tmp_path: Path) -> None:
    line = text_line(tmp_path / "a.txt", "{/x=1}")
    pages = [[line], [line, text_line(tmp_path / "b.txt", "")], [line | {"record": {"x": "2"}}]]
    ids = []
    for lines in pages:
        write_review(write_lines(tmp_path / "r.jsonl", lines), tmp_path / "r.html")
        ids.append(blocks(tmp_path / "r.html")["index"]["documents"][0]["id"])
    assert ids[0] == ids[1] != ids[2]


def test_names_of_modules_are_distinct() -> None:
    """In the page they share one scope, where one function would silently replace another."""
    script = page_script()
    names = re.findall(r"^(?:async )?(?:function|class|const) (\w+)", script, re.MULTILINE)
    assert len(names) > 50
    assert len(names) == len(set(names))
    assert "</script" not in script.lower()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"none/r\.html cannot be written: no such file"):
        write_review(write_lines(tmp_path / "r.jsonl", []), tmp_path / "none" / "r.html")


# Size


def test_only_pages_with_values_are_images(tmp_path: Path) -> None:
    line = pdf_line(tmp_path / "a.pdf", 1, pages=3)
    write_review(write_lines(tmp_path / "r.jsonl", [line]), tmp_path / "r.html")
    assert blocks(tmp_path / "r.html")["index"]["documents"][0]["images"] == {"1": 0}


def test_images_are_left_out_first_and_of_the_surest_documents(tmp_path: Path) -> None:
    probabilities = [0.9, 0.2, 0.5, 0.7]
    lines = [
        pdf_line(tmp_path / f"{number}.pdf", number, confidence={"/x": confidence(probability)})
        for number, probability in enumerate(probabilities)
    ]
    records = write_lines(tmp_path / "r.jsonl", lines)
    full = write_review(records, tmp_path / "r.html")
    size = (tmp_path / "r.html").stat().st_size
    assert full.pages_as_text == 0
    cut = write_review(records, tmp_path / "r.html", max_bytes=size - 1000)
    assert (tmp_path / "r.html").stat().st_size < size - 1000
    assert cut.pages_as_text == 1 and cut.without_text == 0
    entries = blocks(tmp_path / "r.html")["index"]["documents"]
    assert [entry["imagesLeftOut"] for entry in entries] == [1, 0, 0, 0]


def test_texts_are_left_out_and_records_never(tmp_path: Path) -> None:
    lines = [
        text_line(tmp_path / f"{number}.txt", f"{{/x={number}}} {noise(number, 30_000)}", confidence=sure)
        for number, sure in enumerate([{"/x": confidence(0.9)}, {"/x": confidence(0.1)}])
    ]
    records = write_lines(tmp_path / "r.jsonl", lines)
    review = write_review(records, tmp_path / "r.html", max_bytes=400_000)
    assert (tmp_path / "r.html").stat().st_size < 400_000
    assert review.without_text == 1
    surer, other = (details(tmp_path / "r.html")[line["key"]] for line in lines)
    assert other["text"] is not None
    assert surer["text"] is None and "left out" in surer["note"] and surer["record"] == {"x": "0"}


def test_pages_that_cannot_be_rendered_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    line = pdf_line(tmp_path / "a.pdf", 1)
    write_review(write_lines(tmp_path / "r.jsonl", [line]), tmp_path / "r.html")
    assert "images" not in blocks(tmp_path / "r.html")["index"]["documents"][0]


def test_a_page_whose_name_no_file_can_have(tmp_path: Path) -> None:
    records = write_lines(tmp_path / "a.jsonl", [line_of("b.txt", "b", record={"x": 1})])
    with pytest.raises(RunError, match=r"html cannot be written: file name too long"):
        write_review(records, tmp_path / f"{'x' * 300}.html")


def test_a_name_of_the_records_that_is_no_text(tmp_path: Path) -> None:
    records = write_lines(tmp_path / os.fsdecode(b"a\xff.jsonl"), [line_of("b.txt", "b", record={"x": 1})])
    write_review(records, tmp_path / "page.html")
    assert blocks(tmp_path / "page.html")["index"]["goldName"] == os.fsdecode(b"a\xff.gold.jsonl")
