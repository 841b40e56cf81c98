"""The program with tools: what it runs, what it says of it, what it saves, and what it leaves alone."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mlxchat.transcripts.session_file import read_session
from support.process import Scripted, closed_terminal, finished, has_ended
from support.run_program import Ended
from support.schemas import validate
from support.scripted import Reply, model_folder, wait_until
from support.terminal import CTRL_C, Terminal

pytestmark = pytest.mark.plain

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("tools") / "model", "qwen3", "qwen3")


def calls(*names: str) -> str:
    spelled = (f'<tool_call>\n{{"name": "{name}", "arguments": {{"text": "a b"}}}}\n</tool_call>' for name in names)
    return "Let me see.\n" + "\n".join(spelled)


def tool(name: str, *command: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}, "command": command}


def program(model: Path, work: Path, *replies: Reply, saves: bool = False) -> Scripted:
    """With tools: `echo` says its arguments, `slow` notes its process and sleeps, `mark` leaves a file."""
    run = Scripted(model, work, *replies, saves=saves)
    tools = [
        {**tool("echo", "echo", "{text}"), "input": "argv"},
        tool("slow", "/bin/sh", "-c", f"sleep 600 & echo $! > {run.work}/pid; wait"),
        tool("mark", "touch", str(run.work / "marker")),
    ]
    (run.work / "tools.json").write_text(json.dumps(tools))
    return run


def kinds(ended: Ended) -> list[str]:
    return [event["type"] for event in ended.lines]


def test_events_of_a_call_that_runs_and_of_one_that_is_denied(model: Path, tmp_path: Path) -> None:
    run = program(model, tmp_path, calls("echo", "mark"), "All done.")
    ended = run.run("Go.", "--tools", "tools.json", "--allow-tool", "ec*", "--jsonl")
    events = [validate(event) for event in ended.lines]
    told = [kind for kind in kinds(ended) if kind not in ("prefill", "text")]
    assert told == ["session", "tool_call", "tool_call", "tool_result", "tool_result", "turn", "done"]
    one, other = (event for event in events if event["type"] == "tool_result")
    assert (one["name"], one["text"], one["status"]) == ("echo", "a b\n", "ran")
    assert (other["name"], other["status"]) == ("mark", "denied")
    turn = events[-2]
    assert (turn["text"], turn["finish_reason"], len(turn["requests"])) == ("All done.", "tool_denied", 2)
    assert [(call["name"], call["status"]) for call in turn["tool_calls"]] == [("echo", "ran"), ("mark", "denied")]
    assert ended.code == 0
    assert ended.error_lines == ["denied: mark, since nobody can be asked; --allow-tool mark lets it run"]
    assert not (run.work / "marker").exists()
    first, second = run.log()
    assert first.ids == second.ids[: len(first.ids)]


@pytest.mark.slow
def test_no_step_left(model: Path, tmp_path: Path) -> None:
    run = program(model, tmp_path, calls("mark"))
    ended = run.run("Go.", "--tools", "tools.json", "--allow-tool", "*", "--max-steps", "2", "--json")
    value = validate(ended.json)
    assert (ended.code, value["finish_reason"], len(value["requests"])) == (4, "max_steps", 2)
    assert [call["status"] for call in value["tool_calls"]] == ["ran", "not_run"]
    assert (run.work / "marker").exists()


@pytest.mark.slow
def test_ctrl_c_within_a_tool_ends_it_and_all_it_has_started(model: Path, tmp_path: Path) -> None:
    run = program(model, tmp_path, calls("slow", "mark"), "Never.", saves=True)
    process = run.start("Go.", "--tools", "tools.json", "--allow-tool", "*", "--json")
    pid_file = run.work / "pid"
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip() != "", "the tool to start")
    os.kill(process.pid, signal.SIGINT)
    ended = finished(process)
    value = validate(ended.json)
    assert (ended.code, value["finish_reason"]) == (130, "interrupted")
    assert [call["status"] for call in value["tool_calls"]] == ["interrupted", "not_run"]
    assert has_ended(int(pid_file.read_text()))
    assert not (run.work / "marker").exists()
    (path,) = (run.work / "home" / "sessions").glob("*.jsonl")
    roles = [entry.message.role for entry in read_session(path).conversation]
    assert roles == ["user", "assistant", "tool", "tool"], "every call is answered, so any turn can follow"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_it_ends_its_tool_first(model: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Also when its terminal is closed: a tool has a session of its own, and would not be told."""
    run = program(model, tmp_path, calls("slow"))
    with closed_terminal(signal.SIG_DFL):
        process = run.start("Go.", "--tools", "tools.json", "--allow-tool", "*")
    pid_file = run.work / "pid"
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip() != "", "the tool to start")
    process.send_signal(number)
    assert finished(process).code == -number
    assert has_ended(int(pid_file.read_text()))


@pytest.mark.slow
def test_a_described_tool_is_printed_and_not_run(model: Path, tmp_path: Path) -> None:
    run = program(model, tmp_path, calls("mark"))
    ended = run.run("Go.", "--tool-schemas", "tools.json", "--allow-tool", "*", "--json")
    value = validate(ended.json)
    assert (ended.code, value["finish_reason"], len(value["requests"])) == (0, "stop", 1)
    (call,) = value["tool_calls"]
    assert (call["name"], call["arguments"]) == ("mark", {"text": "a b"})
    assert "status" not in call
    assert not (run.work / "marker").exists()


@pytest.mark.slow
def test_a_saved_chat_holds_the_calls_and_goes_on_without_tools(model: Path, tmp_path: Path) -> None:
    """And a session that names tools, servers and consent is told so, and gets none."""
    run = program(model, tmp_path, calls("mark"), "Done.", calls("mark"), saves=True)
    assert run.run("Go.", "--tools", "tools.json", "--allow-tool", "*", "-q").out == "Let me see.\nDone.\n"
    (path,) = (run.work / "home" / "sessions").glob("*.jsonl")
    (run.work / "marker").unlink()
    header, *rest = path.read_text().splitlines()
    hostile = {"tools": "tools.json", "mcpServers": {"x": {"command": "touch", "args": ["marker"]}}, "allowTool": ["*"]}
    path.write_text("\n".join([json.dumps({**json.loads(header), **hostile}), *rest]) + "\n")
    again = program(model, tmp_path, calls("mark"), saves=True)
    ended = again.run("-c", "Again.", "--json")
    value = validate(ended.json)
    assert "not obeyed: allowTool, mcpServers, tools" in ended.err
    assert [call["name"] for call in value["tool_calls"]] == ["mark"]
    assert "status" not in value["tool_calls"][0]
    assert not (run.work / "marker").exists()
    messages = [entry.message for entry in read_session(path).conversation]
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert messages[2].tool_call_id == messages[1].tool_calls[0].id
    assert messages[2].name == "mark"


@pytest.mark.slow
def test_a_hostile_folder_changes_nothing(model: Path, tmp_path: Path) -> None:
    """Files that other programs take servers, tools and consent from, in the folder where it is started."""
    run = program(model, tmp_path, calls("mark"))
    servers = {"mcpServers": {"x": {"command": "touch", "args": [str(run.work / "marker")]}}}
    for name in (".mcp.json", "mcp.json", ".mlxchat/mcp.json", ".vscode/mcp.json", ".mlxchat/tools.json"):
        file = run.work / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(servers))
    (run.work / ".mlxchat.toml").write_text('tools = "tools.json"\nmcp = "mcp.json"\nallow_tool = ["*"]\n')
    ended = run.run("Go.", "--json")
    assert (ended.code, validate(ended.json)["finish_reason"]) == (0, "stop")
    assert not (run.work / "marker").exists()
    assert "names what no project may set, and is not obeyed: tools, mcp, allow_tool" in ended.err


@pytest.mark.slow
def test_a_server_in_a_script_with_several_turns(model: Path, tmp_path: Path) -> None:
    asks = '<tool_call>\n{"name": "test__add", "arguments": {"a": 40, "b": 2}}\n</tool_call>'
    run = program(model, tmp_path, asks, "It is 42.", "You are welcome.")
    server = {"mcpServers": {"test": {"command": sys.executable, "args": [str(SERVER)]}}}
    (run.work / "mcp.json").write_text(json.dumps(server))
    (run.work / "turns.txt").write_text("40 + 2?\nThanks.\n")
    ended = run.run("--turns", "turns.txt", "--mcp", "mcp.json", "--allow-tool", "test__*", "--json")
    value = validate(ended.json)
    assert [turn["text"] for turn in value["turns"]] == ["It is 42.", "You are welcome."]
    assert value["turns"][0]["tool_calls"][0]["result"] == "the sum is 42"
    assert (ended.code, ended.err) == (0, "")
    first, second, third = run.log()
    assert first.ids == second.ids[: len(first.ids)]
    assert third.kind != "none"


# -- at the terminal ---------------------------------------------------------------------------------------------


def test_a_conversation_with_tools(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer of a person, Ctrl-C at the question and within a tool, words typed before a question, /tools."""
    replies = (
        *(calls("echo"), "One.", calls("echo"), "Two.", calls("echo"), "Three.", calls("echo"), "Four."),
        *(calls("mark"), calls("slow"), "Five."),
    )
    run = program(model, tmp_path, *replies)
    monkeypatch.chdir(run.work)
    with Terminal(run.arguments("--tools", "tools.json", "--no-ahead"), run.environment) as terminal:
        terminal.wait_for_prompt()
        terminal.line("/tools")
        terminal.wait_for(r"echo +asks .*\nslow +asks .*\nmark +asks")
        run.gate.hold("1.token.3")
        terminal.line("deny it")
        run.gate.wait_held()
        terminal.send("typed aoy")  # meant for the next prompt, and no answer
        run.gate.release()
        terminal.wait_for(r"echo, from tools\.json, wants to run:\n  echo 'a b'\n(.*\n)+.*eny\?$")
        terminal.send("\r")
        terminal.send("d")
        terminal.wait_for(r"echo → denied: .*\nOne\.\n(.*\n)*> typed aoy$")
        terminal.send("\x7f" * 3 + "once\r")
        terminal.wait_for(r"eny\?$", after="typed once")
        terminal.send("o")
        terminal.wait_for(r"eny\? once\n(.*\n)*echo → a b\n(.*\n)*Two\.", after="typed once")
        terminal.wait_for_prompt()
        terminal.line("always")
        terminal.wait_for(r"eny\?$", after="> always")
        terminal.send("a")
        terminal.wait_for(r"Three\.", after="> always")
        terminal.wait_for_prompt()
        terminal.line("unasked")
        terminal.wait_for(r"echo → a b\n(.*\n)*Four\.", after="> unasked")
        assert "eny?" not in terminal.text.rpartition("> unasked")[2]
        terminal.wait_for_prompt()
        terminal.line("stop asking")
        terminal.wait_for(r"eny\?$", after="> stop asking")
        terminal.send(CTRL_C)
        terminal.wait_for(r"eny\? stop\nmark → not run.*\n(.*\n)*>$", after="> stop asking")
        terminal.line("stop working")
        terminal.wait_for(r"eny\?$", after="> stop working")
        terminal.send("o")
        pid_file = run.work / "pid"
        wait_until(lambda: pid_file.exists() and pid_file.read_text().strip() != "", "the tool to start")
        terminal.send(CTRL_C)
        terminal.wait_for(r"slow → interrupted.*\n(.*\n)*>$", after="> stop working")
        assert has_ended(int(pid_file.read_text()))
        terminal.line("/tools disable s*")
        terminal.wait_for(r"slow: no longer told; [\d,]+ of [\d,]+ tokens will be prefilled with the next message")
        terminal.line("and now")
        terminal.wait_for(r"Five\.", after="> and now")
        terminal.wait_for_prompt()
        terminal.line("/exit")
        assert terminal.wait_for_exit() == 0
    assert not (run.work / "marker").exists()
    assert len(run.log()) == len(replies)
