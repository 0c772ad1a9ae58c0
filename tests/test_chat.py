from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from constrain.chat import Chat
from constrain.cli import cli
from constrain.errors import GenerationError
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2Sampler
from constrain.llm import load_model, make_filters
from constrain.model import ExLlamaV2Cache

GREEDY = ExLlamaV2Sampler.Settings.greedy()
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% else %}{{ m.role[0] }}={{ m.content }};"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}a={% endif %}"
)


@pytest.fixture
def generator(tiny_dir: Path) -> ExLlamaV2DynamicGenerator:
    model, tokenizer = load_model(tiny_dir)
    return ExLlamaV2DynamicGenerator(model, ExLlamaV2Cache(model), tokenizer)


@pytest.fixture
def with_template(tiny_dir: Path, tmp_path: Path) -> ExLlamaV2DynamicGenerator:
    folder = shutil.copytree(tiny_dir, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    model, tokenizer = load_model(folder)
    return ExLlamaV2DynamicGenerator(model, ExLlamaV2Cache(model), tokenizer)


def test_what_is_said_is_kept(generator: ExLlamaV2DynamicGenerator) -> None:
    chat = Chat(generator, "Be brief.", GREEDY, max_new_tokens=6)
    pieces = list(chat.answer("hello"))
    assert len(pieces) > 1 and chat.finish_reason == "max_new_tokens"
    list(chat.answer("and then?"))
    said = [(message["role"], message["content"]) for message in chat.messages]
    assert [role for role, _ in said] == ["system", "user", "assistant", "user", "assistant"]
    assert said[2][1] == "".join(pieces).strip() and said[3][1] == "and then?"
    chat.reset()
    assert chat.messages == [{"role": "system", "content": "Be brief."}]
    assert list(chat.answer("hello")) == pieces


def test_answers_may_be_constrained(generator: ExLlamaV2DynamicGenerator) -> None:
    chat = Chat(generator, max_new_tokens=40, seed=1)
    for _ in range(2):
        filters = make_filters(generator.model, generator.tokenizer, regex="(yes|no), [a-z]{3}")
        assert re.fullmatch("(yes|no), [a-z]{3}", "".join(chat.answer("is it?", filters)))
        assert chat.finish_reason == "stop_token"


@pytest.mark.parametrize("template", [True, False])
def test_prompts(template: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = request.getfixturevalue("with_template" if template else "generator")
    prompts = []
    enqueue = generator.enqueue

    def observed(job: object) -> object:
        prompts.append(generator.tokenizer.decode(job.sequences[0].input_ids.torch())[0])  # type: ignore[attr-defined]
        return enqueue(job)

    monkeypatch.setattr(generator, "enqueue", observed)
    chat = Chat(generator, "Hi.", GREEDY, max_new_tokens=3)
    first = "".join(chat.answer("one")).strip()
    list(chat.answer("two"))
    if template:
        assert prompts == ["Hi.u=one;a=", f"Hi.u=one;a={first};u=two;a="]
    else:
        assert prompts == ["Hi.\nUser: one\nAssistant:", f"Hi.\nUser: one\nAssistant: {first}\nUser: two\nAssistant:"]


def test_the_oldest_is_left_out(generator: ExLlamaV2DynamicGenerator) -> None:
    chat = Chat(generator, settings=GREEDY, max_new_tokens=8)
    for number in range(12):
        list(chat.answer(f"the quick brown fox number {number} jumps over the lazy dog"))
    assert len(chat.messages) == 24
    said = list(chat.messages)
    with pytest.raises(GenerationError, match=r"the message has .* and the context 256, of which 8 are"):
        next(chat.answer("fox " * 300))
    assert chat.messages == said


def test_an_answer_may_be_broken_off(generator: ExLlamaV2DynamicGenerator) -> None:
    chat = Chat(generator, settings=GREEDY, max_new_tokens=50)
    answer = chat.answer("hello")
    begun = next(answer)
    assert isinstance(answer, Iterator)
    answer.close()  # type: ignore[attr-defined]
    assert generator.num_remaining_jobs() == 0 and chat.finish_reason is None
    assert chat.messages[-1] == {"role": "assistant", "content": begun.strip()}
    assert list(chat.answer("go on"))


def test_lines_are_messages(tiny_dir: Path) -> None:
    arguments = ["chat", "--model", str(tiny_dir), "--regex", "[ab]{3}", "--temperature", "0"]
    result = CliRunner().invoke(cli, arguments, input="hello\n\n/reset\nhello\n/quit\nunread\n")
    assert result.exit_code == 0, result.output
    assert len(re.findall("[ab]{3}\n", result.stdout)) == 2
    result = CliRunner().invoke(
        cli, ["chat", "--model", str(tiny_dir), "--max-new-tokens", "2"], input="fox " * 300 + "\nhi\n"
    )
    assert result.exit_code == 0 and "Error: the message has" in result.stderr and "(stopped" in result.stderr


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *command: str) -> None:
        self.master, slave = pty.openpty()
        # A terminal that can do little, so that no control sequences stand between the words.
        environment = {**os.environ, "TERM": "dumb"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.output = ""

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, pattern: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not re.search(pattern, self.output):
            assert select.select([self.master], [], [], max(0, end - time.monotonic()))[0], self.output
            self.output += os.read(self.master, 4096).decode(errors="replace")


def test_in_a_terminal(tiny_dir: Path) -> None:
    terminal = Terminal(sys.executable, "-m", "constrain", "chat", "--model", str(tiny_dir), "--regex", "[ab]{3}")
    terminal.wait_for(r"> $")
    terminal.send("hello\r")
    terminal.wait_for(r"hello\r\n[ab]{3}\r\n(.*)> $")
    terminal.send("\x04")
    assert terminal.process.wait(30) == 0
