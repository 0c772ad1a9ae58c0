"""Inputs of a run: files, folders, patterns, standard input and tables."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from constrain.documents import Document, Source, inputs
from constrain.errors import ArgumentError, DocumentError

ROWS: list[dict[str, Any]] = [
    {"id": "a", "text": "Erste Zeile\nmit Umbruch; «ä»", "kind": "mail"},
    {"id": "b", "text": "第二行", "kind": "note"},
    {"id": "c", "text": "", "kind": "note"},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, which is the working directory."""
    for name in ("b.txt", "a.md", "deep/c.html", "deep/picture.png", ".hidden/d.txt", "deep/e", "table.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("text\nabc")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*paths: str, **options: str) -> list[str]:
    return [source.name for source in inputs(paths, **options)]


def documents(path: Path, column: str = "text", ids: str | None = None) -> list[Document]:
    return [source.read() for source in inputs([str(path)], column=column, ids=ids)]


def write_table(path: Path) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        cells = [[*ROWS[0]], *([str(cell) for cell in row.values()] for row in ROWS)]
        delimiter = "\t" if path.suffix == ".tsv" else ";"
        lines = [delimiter.join(f'"{cell}"' for cell in row) for row in cells]
        path.write_text("\n".join(lines), encoding="utf-8-sig")


# Files


def test_folders_give_the_files_of_known_formats_in_order(folder: Path) -> None:
    assert names(".") == ["a.md", "b.txt", "deep/c.html"]
    assert names(str(folder), column="text") == [
        *(str(folder / name) for name in ("a.md", "b.txt", "deep/c.html")),
        f"{folder / 'table.csv'}#1",
    ]


def test_patterns_and_names_give_any_file(folder: Path) -> None:
    assert names("deep/*") == ["deep/c.html", "deep/e", "deep/picture.png"]
    assert names("**/*.html", "deep/e", "missing.txt") == ["deep/c.html", "deep/e", "missing.txt"]
    (folder / "[1].txt").write_text("x")
    assert names("[1].txt") == ["[1].txt"]


def test_nothing_is_read_before_it_is_asked_for(folder: Path) -> None:
    missing = next(inputs(["missing.txt"]))
    assert isinstance(missing, Source)
    with pytest.raises(DocumentError, match=r"^missing\.txt: no such file"):
        missing.read()


def test_a_pattern_or_folder_without_files_is_an_error(folder: Path) -> None:
    (folder / "empty").mkdir()
    for path in ("*.pdf", "empty"):
        with pytest.raises(DocumentError, match="no file is there that can be read"):
            inputs(["a.md", path])


def test_standard_input_is_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"<!doctype html><p>Hello")))
    (source,) = inputs(["-"])
    assert source.read() == Document("Hello", "-")


# Tables


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_rows_are_documents_with_the_other_columns_as_metadata(suffix: str, tmp_path: Path) -> None:
    write_table(path := tmp_path / f"mails{suffix}")
    found = documents(path)
    assert [document.text for document in found] == [row["text"] for row in ROWS]
    assert [document.source for document in found] == [f"{path}#{number}" for number in (1, 2, 3)]
    assert found[0].metadata == {"id": "a", "kind": "mail"}
    assert [document.source for document in documents(path, ids="id")] == [f"{path}#{row['id']}" for row in ROWS]


def test_without_a_column_a_table_is_a_text(tmp_path: Path) -> None:
    write_table(path := tmp_path / "mails.csv")
    (source,) = inputs([str(path)])
    assert source.read().text.startswith('"id";"text"')
    write_table(path := tmp_path / "mails.parquet")
    (source,) = inputs([str(path)])
    with pytest.raises(DocumentError, match="it is a table: name the column"):
        source.read()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_missing_column_is_an_error_at_once(suffix: str, tmp_path: Path) -> None:
    write_table(path := tmp_path / f"mails{suffix}")
    for options in ({"column": "body"}, {"column": "text", "ids": "body"}):
        with pytest.raises(DocumentError, match="the table has no column 'body', but id, text, kind"):
            inputs([str(path)], **options)
    (twice := tmp_path / "twice.csv").write_text("id,text,text\n1,a,b\n")
    with pytest.raises(DocumentError, match="the table has several columns 'text': rename all but one"):
        inputs([str(twice)], column="text")
    assert inputs([str(twice)], column="id")
    (empty := tmp_path / "empty.csv").touch()
    with pytest.raises(DocumentError, match="the table has no column 'text': it is empty"):
        inputs([str(empty)], column="text")


def test_rows_that_cannot_be_read_leave_the_others(tmp_path: Path) -> None:
    path = tmp_path / "mails.jsonl"
    deep = "[" * 2000
    path.write_text(f'{{"text": "a"}}\n{{"text"\n[1]\n\n{{"body": 1}}\n{{"text": 5}}\n{deep}\n{{"text": null}}\n')
    found: list[str] = []
    for source in inputs([str(path)], column="text"):
        try:
            found.append(source.read().text)
        except DocumentError as error:
            found.append(str(error).removeprefix(str(path)))
    assert found[0] == "a" and found[-1] == ""
    assert found[1].startswith("#2: it is not JSON")
    assert found[5].startswith("#7: it is not JSON: maximum recursion")
    assert found[2:5] == [
        "#3: it is not a JSON object",
        "#5: the row has no column 'text', but body",
        "#6: column 'text' is not a text (int)",
    ]


def test_a_row_with_too_many_cells_is_an_error_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mails.csv"
    path.write_text("id,text\n1,a\n2,b,c\n3,d\n4\n")
    first, second, third, fourth = inputs([str(path)], column="text")
    assert (first.read().text, third.read().text, fourth.read().text) == ("a", "d", "")
    with pytest.raises(DocumentError, match=r"mails\.csv#2: it has more cells than columns"):
        second.read()


def test_a_quotation_mark_that_is_not_closed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\na\n"b\nc"\n"d\ne\n', encoding="utf-8")
    *rows, last = inputs([tmp_path / "a.csv"], column="text")
    assert [row.read().text for row in rows] == ["a", "b\nc"]
    with pytest.raises(DocumentError, match=r"a\.csv#3: a quotation mark is not closed, so that all further rows are"):
        last.read()


def test_the_delimiter_can_be_named_before_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sep=;\r\na,b;text\r\n1;x,y\r\n", encoding="utf-8")
    assert [row.read().text for row in inputs([tmp_path / "a.csv"], column="text")] == ["x,y"]


@pytest.mark.parametrize("header", ["text,id\n", "sep=;\ntext;id\n"])
def test_empty_lines_before_the_header_of_a_table_are_passed_over(header: str, tmp_path: Path) -> None:
    separator = header[-4]
    (tmp_path / "a.csv").write_text(f"\n  \n{header}x{separator}1\n", encoding="utf-8")
    assert [row.read().text for row in inputs([tmp_path / "a.csv"], column="text")] == ["x"]


def test_other_encodings_and_long_cells_are_read(tmp_path: Path) -> None:
    path, long = tmp_path / "mails.csv", "Grüße aus Köln. " * 20_000
    path.write_text(f"id,text\n1,{long}\n", encoding="cp1252")
    assert documents(path)[0].text == long


def test_broken_tables_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "mails.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DocumentError, match="cannot be read as Parquet"):
        inputs([str(path)], column="text")
    path = tmp_path / "mails.csv"
    path.write_bytes(b"id,text\n" + (b"1," + b"abc" * 10_000 + b"\n") * 40 + "2,Müller\n".encode("cp1252"))
    with pytest.raises(DocumentError, match="it is not in one encoding"):
        list(inputs([str(path)], column="text"))
    with pytest.raises(DocumentError, match="no such file"):
        inputs([str(tmp_path / "none.csv")], column="text")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_tables_are_not_held_in_memory(suffix: str, tmp_path: Path) -> None:
    path, rows = tmp_path / f"mails{suffix}", [{"text": "word " * 2000}] * 3000
    if suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=100, use_dictionary=False)
    else:
        header = "text\n" if suffix == ".csv" else ""
        path.write_text(header + "".join((row["text"] if header else json.dumps(row)) + "\n" for row in rows))
    tracemalloc.start()
    assert sum(1 for _ in inputs([str(path)], column="text")) == 3000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


# Names of rows, and files that are named twice


def test_rows_without_a_name_are_named_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "mails.jsonl"
    ids = ["a", "", None, [1], {"x": 1}, True, "  ", 7]
    path.write_text("".join(json.dumps({"id": each, "text": "x"}) + "\n" for each in ids))
    found = [source.name.rpartition("#")[2] for source in inputs([str(path)], column="text", ids="id")]
    assert found == ["a", "2", "3", "4", "5", "6", "7", "7 (row 8)"]


def test_a_row_with_the_name_of_an_earlier_one_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mails.csv"
    path.write_text("id,text\na,x\nb,y\na,z\n")
    *first, last = inputs([str(path)], column="text", ids="id")
    assert [source.read().text for source in first] == ["x", "y"]
    with pytest.raises(DocumentError, match=r"mails\.csv#a \(row 3\): rows 1 and 3 have the same 'id', 'a'"):
        last.read()


def test_a_file_that_is_named_twice_is_one_document(folder: Path) -> None:
    assert len(names("a.md", "./a.md", "*.md", ".")) == 3
    assert len({*names("a.md", "./a.md", "*.md", ".")}) == 3


def test_a_column_without_a_table_is_an_error(folder: Path) -> None:
    with pytest.raises(ArgumentError, match="column 'text' is one of tables"):
        inputs(["a.md"], column="text")


def test_the_encoding_can_be_given(tmp_path: Path) -> None:
    text, table = tmp_path / "a.txt", tmp_path / "b.csv"
    text.write_bytes("grün".encode("cp437"))
    table.write_bytes("id,text\n1,grün\n".encode("cp437"))
    sources = inputs([str(text), str(table)], column="text", encoding="cp437")
    assert [source.read().text for source in sources] == ["grün", "grün"]
    with pytest.raises(ArgumentError, match="there is no encoding of texts 'cp1'"):
        inputs([str(text)], encoding="cp1")


def test_paths_are_a_list(folder: Path) -> None:
    assert [source.name for source in inputs([folder])] == [source.name for source in inputs([str(folder)])]
    for paths in (str(folder), folder, None, 5):
        with pytest.raises(ArgumentError, match="paths must be a list of paths"):
            inputs(paths)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="a path must be a str or a Path, not 5"):
        inputs([5])  # type: ignore[list-item]


def test_a_pattern_reads_a_folder_once_whatever_links_lead_to_it(tmp_path: Path) -> None:
    (tmp_path / "mails" / "old").mkdir(parents=True)
    for name in ("a.txt", "old/b.txt"):
        (tmp_path / "mails" / name).write_text(name)
    (tmp_path / "mails" / "old" / "loop").symlink_to(tmp_path / "mails", target_is_directory=True)
    (tmp_path / "mails" / "c.txt").symlink_to("a.txt")  # a document of its own, by its name
    found = [source.name for source in inputs([f"{tmp_path}/mails/**/*.txt"])]
    assert found == [f"{tmp_path}/mails/{name}" for name in ("a.txt", "c.txt", "old/b.txt")]
