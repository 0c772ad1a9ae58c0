"""The journal: what is in it survives, what is torn is cut off, and what does not belong there is left alone."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from file_sizes import largest_file

from constrain.errors import OutputInUse, RunError
from constrain.runs import Journal, open_output

SETTINGS = "0" * 16


def key(number: int, settings: str = SETTINGS) -> str:
    return f"{settings}{number:032x}"


def record(number: int, source: str | None = None) -> dict[str, Any]:
    return {"key": key(number), "source": source or f"{number}.txt", "record": {"text": "ä\u2028\n"}}


def failure(number: int, source: str | None = None) -> dict[str, Any]:
    return {"key": key(number), "source": source or f"{number}.txt", "error": {"type": "E", "message": "no"}}


def write(path: Path, *lines: dict[str, Any]) -> None:
    with Journal(path) as journal:
        for line in lines:
            journal.append(line)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def test_lines_are_appended_and_found_again(path: Path) -> None:
    write(path, record(1), failure(2))
    write(path, record(3))
    assert read(path) == [record(1), failure(2), record(3)]
    with Journal(path) as journal:
        assert [journal.has_record(key(number)) for number in range(4)] == [False, True, False, True]
        assert [journal.has_failure(key(number)) for number in range(4)] == [False, False, True, False]


def test_a_line_is_in_the_file_when_append_returns(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(record(1))
        assert read(path) == [record(1)]


def test_a_line_has_one_line_break_for_every_program(path: Path) -> None:
    write(path, record(1))
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1


def test_names_that_are_no_text_are_kept(path: Path) -> None:
    source = os.fsdecode(b"\xff.txt")
    write(path, record(1, source))
    assert read(path)[0]["source"] == source


@pytest.mark.parametrize("torn", range(1, 20))
def test_a_torn_last_line_is_cut_off(path: Path, torn: int) -> None:
    write(path, record(1))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:torn])
    write(path, record(2))
    assert read(path) == [record(1), record(2)]


def test_a_last_line_that_lacks_its_line_break_only_is_kept(path: Path) -> None:
    write(path, record(1), record(2))
    path.write_bytes(path.read_bytes()[:-1])
    write(path, record(3))
    assert read(path) == [record(1), record(2), record(3)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"Dear Ada,\nall is well", "line 1 of .* is not JSON"),
        (b'{"key": "a", "record": 1}\nall is well', "line 2 of .* is not JSON"),
        (b'{"key": "a", "record": 1}\n{"key": "b"\n{"key": "c"}\n', "line 2 of .* is not JSON"),
        (b"[1]\n", "line 1 of .* is no JSON object"),
        (b'{"type": "string"}\n', "line 1 of .* is neither a record nor a failure"),
        (b'{"document": "two", "record": 2}\n', "line 1 of .* is neither a record nor a failure"),
        (b"\0\0\0", "line 1 of .* is not JSON"),
        (b"[" * 5000, "line 1 of .* is not JSON"),
    ],
)
def test_files_of_others_are_left_alone(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    for _ in range(2):  # the lock is released
        with pytest.raises(RunError, match=said):
            Journal(path)
    assert path.read_bytes() == content


def test_lines_without_a_key_are_kept(path: Path) -> None:
    path.write_text('{"source": "a.txt", "record": 1}\n')
    with Journal(path) as journal:
        journal.append(record(2))
        journal.append(record(1))
        journal.finish([key(1), key(2)])
    assert read(path) == [{"source": "a.txt", "record": 1}, record(1), record(2)]


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ends = os.pipe()  # as of a shell, without a path of its own
    for path in (tmp_path, tmp_path / "pipe", Path(f"/dev/fd/{ends[1]}")):
        with pytest.raises(RunError, match=f"^{path} is no regular file"):
            Journal(path)
    for end in ends:
        os.close(end)


# Order


def test_finished_lines_are_in_order_and_single(path: Path) -> None:
    write(path, record(9), failure(2), record(1), failure(3))
    with Journal(path) as journal:
        journal.append(record(2))
        journal.append(record(3))
        journal.finish([key(1), key(2), key(3), key(4)])
        journal.append(record(4))
    assert read(path) == [record(number) for number in (9, 1, 2, 3, 4)]


def test_a_failure_is_replaced_by_a_later_one_and_by_a_record_of_its_source(path: Path) -> None:
    """Even if the document has changed, so that its key is another."""
    again = {**failure(2), "error": {"type": "E", "message": "again"}}
    with Journal(path) as journal:
        for line in (failure(1, "a.txt"), failure(2), failure(3), record(4, "a.txt"), again):
            journal.append(line)
        assert not journal.has_failure(key(1))
        journal.finish([])
    assert read(path) == [failure(3), record(4, "a.txt"), again]


def test_a_record_is_never_replaced(path: Path) -> None:
    with Journal(path) as journal:
        for line in (record(1, "a.txt"), record(2, "a.txt"), failure(1, "a.txt")):
            journal.append(line)
        journal.finish([])
    assert read(path) == [record(1, "a.txt"), record(2, "a.txt")]


def test_failures_of_other_settings_or_parts_stay(path: Path) -> None:
    other = {**failure(1), "key": key(1, "f" * 16)}
    page = {**failure(2, "1.txt"), "part": {"page": 1}}
    write(path, other, page, record(1))
    with Journal(path) as journal:
        journal.finish([])
    assert read(path) == [other, page, record(1)]


def test_a_file_in_order_is_not_written_again(path: Path) -> None:
    write(path, record(1), record(2))
    before = path.stat()
    with Journal(path) as journal:
        journal.finish([key(1), key(2)])
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_new_file_has_the_mode_of_the_old_one_and_links_stay_links(tmp_path: Path) -> None:
    path, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    write(path, record(2), record(1))
    path.chmod(0o600)
    link.symlink_to(path)
    with Journal(link) as journal:
        journal.finish([key(1), key(2)])
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(path) == [record(1), record(2)]


# Several writers


def test_a_second_writer_is_told_who_the_first_is(path: Path) -> None:
    with Journal(path):
        with pytest.raises(OutputInUse) as caught:
            Journal(path)
        described = (
            rf"out\.jsonl is being written by process {os.getpid()} on \S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"
        )
        assert re.search(described, str(caught.value))
    Journal(path).close()


def hold(path: Path, queue: Any) -> None:
    journal = Journal(path)
    journal.append(record(1))
    queue.put("locked")
    signal.pause()


def test_the_lock_of_a_killed_process_is_free(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    holder = spawn.Process(target=hold, args=(path, queue), daemon=True)
    holder.start()
    assert queue.get(timeout=60) == "locked"
    with pytest.raises(OutputInUse, match=f"process {holder.pid} on"):
        Journal(path)
    holder.kill()
    holder.join()
    write(path, record(2))
    assert read(path) == [record(1), record(2)]


# A full disk


def test_a_full_disk_leaves_the_lines_whole(path: Path) -> None:
    write(path, record(1))
    reason = r"cannot write .*out\.jsonl: File too large"
    with Journal(path) as journal, largest_file(path.stat().st_size + 20), pytest.raises(RunError, match=reason):
        journal.append(record(2))
    assert read(path) == [record(1)]


def test_a_full_disk_leaves_the_old_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, record(2), record(1))
    monkeypatch.setattr("os.fsync", fail_for_want_of_room)
    with Journal(path) as journal, pytest.raises(RunError, match="No space left on device"):
        journal.finish([key(1), key(2)])
    assert read(path) == [record(2), record(1)]
    assert not list(path.parent.glob(".*.new"))


def fail_for_want_of_room(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_the_format_is_that_of_the_suffix(tmp_path: Path) -> None:
    kinds = {}
    for suffix in ("jsonl", "csv", "parquet", "txt"):
        with open_output(tmp_path / f"out.{suffix}") as output:
            kinds[suffix] = type(output).__name__
    assert kinds == {"jsonl": "Journal", "csv": "Table", "parquet": "Table", "txt": "Journal"}


def test_a_folder_in_which_no_lock_can_be_made_is_not_taken_for_a_locked_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("pathlib.Path.touch", refuse)
    with pytest.raises(RunError, match=r"cannot write .*out\.jsonl: No such file or directory$"):
        Journal(tmp_path / "out.jsonl")
