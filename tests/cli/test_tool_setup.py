"""The flags of tools, and what /tools and /mcp do with what they brought."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.json_output import JsonOutput
from mlxchat.cli.one_shot import run_one_shot
from mlxchat.cli.plain_output import PlainOutput
from mlxchat.cli.repl_tools import ReplTools
from mlxchat.cli.streams import Streams
from mlxchat.cli.tool_setup import RunTools, ToolFiles
from mlxchat.cli.turn_result import TurnResult
from mlxchat.engine.events import StepDone, ToolResultDone
from mlxchat.engine.messages import ToolCall, assistant, user
from mlxchat.engine.options import RequestOptions
from mlxchat.engine.stats import RequestStats
from mlxchat.engine.tools.approvals import Approvals
from mlxchat.engine.tools.loop import MAX_STEPS, ToolLoop
from mlxchat.engine.tools.mcp_config import ServerSpec
from mlxchat.engine.tools.tool import Tool, ToolResult
from mlxchat.engine.tools.toolbox import Toolbox
from mlxchat.errors import EngineFailed, MlxchatError, UsageError
from support.fake_engine import FakeChat, FakeEngine, FakeInfo
from support.schemas import validate

pytestmark = pytest.mark.plain


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    named = {"name": "now", "description": "The time."}
    (tmp_path / "tools.json").write_text(json.dumps([{"type": "function", "function": named, "command": ["date"]}]))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "far.json").write_text(json.dumps({"mcpServers": {"far": {"url": "https://example.org/mcp"}}}))
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "code", "cause"),
    [
        ({"allow_tool": ["x"]}, 2, "--allow-tool means nothing without tools"),
        ({"max_steps": 3}, 2, "--max-steps means nothing without tools"),
        ({"tools": ["absent.json"]}, 66, "can't read absent.json"),
        ({"tools": ["broken.json"]}, 65, "broken.json is not JSON"),
        ({"tools": ["far.json"]}, 65, "far.json is no list of tools"),
        ({"mcp": ["tools.json"]}, 65, 'has no "mcpServers"'),
        ({"mcp": ["far.json"], "offline": True}, 2, "--offline and the server far"),
        ({"mcp": ["far.json", "far.json"]}, 65, "two servers are called far"),
    ],
)
def test_flags_that_are_wrong(folder: Path, flags: dict[str, Any], code: int, cause: str) -> None:
    with pytest.raises(MlxchatError) as caught:
        ToolFiles(ChatFlags(**flags))
    assert (caught.value.exit_code, bool(caught.value.hint)) == (code, True)
    assert cause in caught.value.message


def test_files_become_a_loop(folder: Path) -> None:
    flags = ChatFlags(tools=["tools.json"], allow_tool=["n*"], max_steps=3)
    tools = ToolFiles(flags).open(Streams("never", stdout=io.StringIO(), stderr=io.StringIO()), asks=False)
    assert tools.loop is not None
    (tool,) = tools.loop.toolbox.tools
    assert tool.origin == "tools.json"
    assert tools.loop.approvals.allows(tool)
    assert not tools.loop.approvals.can_ask
    assert tools.schemas()[0]["function"]["name"] == "now"
    tools.close()


def test_without_flags_there_is_nothing() -> None:
    tools = ToolFiles(ChatFlags()).open(Streams("never", stdout=io.StringIO(), stderr=io.StringIO()), asks=True)
    assert (tools.loop, tools.servers, tools.schemas()) == (None, None, ())
    tools.close()
    assert MAX_STEPS == 30, "the help of --max-steps names it"


# -- one shot ----------------------------------------------------------------------------------------------------


class Says:
    def run(self, arguments: Any, stopped: Any) -> ToolResult:
        return ToolResult("ran", f"it is {arguments['x']}")

    def describe(self, arguments: Any) -> str:
        return ""


def one_shot(*allowed: str, max_steps: int = MAX_STEPS, stream: bool = True) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a question whose first answer calls `weather`."""
    out, err = io.StringIO(), io.StringIO()
    weather = Tool("weather", {"name": "weather"}, "tools.json", "id", Says())
    loop = ToolLoop(Toolbox([weather]), Approvals(allowed), max_steps)
    output = PlainOutput(Streams("never", stdout=out, stderr=err), stream=stream)
    chat: Any = FakeChat(FakeEngine())
    code = run_one_shot(chat, user("call weather"), RequestOptions(), output, loop)
    return code, out.getvalue(), err.getvalue()


def test_a_tool_in_one_shot() -> None:
    code, out, err = one_shot("weather")
    assert (code, out) == (0, "it is 1\n")
    assert err == 'calls weather {"x": 1}\nweather → it is 1\n'
    assert one_shot("weather", stream=False)[:2] == (0, "it is 1\n")


def test_held_back_an_answer_is_said_once() -> None:
    """Also where the turn was stopped behind it, and ends with it."""
    out = io.StringIO()
    output = PlainOutput(Streams("never", stdout=out, stderr=io.StringIO()), stream=False)
    step = assistant("Let me see.")
    output.event(StepDone(step, RequestStats()))
    output.turn(TurnResult(step, "interrupted"))
    assert out.getvalue() == "Let me see.\n"


def test_denied_in_one_shot() -> None:
    code, out, err = one_shot()
    assert (code, out) == (0, "denied: the user did not allow this call\n")
    assert "denied: weather, since nobody can be asked; --allow-tool weather lets it run\n" in err


def test_the_exit_code_of_a_turn_without_a_step_left() -> None:
    code, out, err = one_shot("weather", max_steps=1)
    assert (code, out) == (4, "")
    assert "weather → not run: the limit of 1 steps was reached" in err


def test_a_failure_after_a_tool_says_what_the_tool_has_done() -> None:
    out = io.StringIO()
    output = JsonOutput(Streams("never", stdout=out, stderr=io.StringIO()), turns=False)
    output.event(ToolResultDone(ToolCall("c1", "weather", {"x": 1}), ToolResult("ran", "it is 1")))
    output.failed(EngineFailed("the model run failed"))
    (call,) = validate(json.loads(out.getvalue()))["tool_calls"]
    assert (call["name"], call["status"], call["result"]) == ("weather", "ran", "it is 1")


def test_a_model_without_tool_calls_is_named() -> None:
    told: list[str] = []
    weather = Tool("weather", {"name": "weather"}, "tools.json", "id", Says())
    tools, info = RunTools(ToolLoop(Toolbox([weather]), Approvals())), FakeInfo(tools=False)
    tools.settle(info, told.append)  # type: ignore[arg-type]
    assert told == ["fake knows no tool calls: it won't use the tools"]
    RunTools().settle(info, told.append)  # type: ignore[arg-type]
    tools.settle(FakeInfo(), told.append)  # type: ignore[arg-type]
    assert len(told) == 1


# -- /tools and /mcp ---------------------------------------------------------------------------------------------


class Runs:
    def run(self, arguments: Any, stopped: Any) -> Any:
        raise AssertionError

    def describe(self, arguments: Any) -> str:
        return ""


def tool(name: str, runs: bool = True, words: str = "Does it.\nMore.") -> Tool:
    return Tool(name, {"name": name, "description": words}, "tools.json", name, Runs() if runs else None)


@dataclass
class FakeServer:
    spec: ServerSpec
    state: str = "ready"
    tools: list[Tool] = field(default_factory=list)
    left_out: str = ""

    def start(self) -> None:
        self.state = "ready"

    def wait_ready(self) -> None:
        pass

    def stop(self) -> None:
        self.state = "off"


@dataclass
class FakeServers:
    servers: list[FakeServer]

    @property
    def tools(self) -> list[Tool]:
        return [tool for server in self.servers if server.state == "ready" for tool in server.tools]

    def refresh(self) -> None:
        pass

    def find(self, name: str) -> FakeServer:
        return next(server for server in self.servers if server.spec.name == name)


def sizes(texts: Sequence[str]) -> list[int]:
    """A token for every ten bytes. Like a tokenizer it takes no half of a surrogate pair."""
    return [len(text.encode()) // 10 for text in texts]


class Typed:
    """/tools and /mcp with two tools of a file and one server."""

    def __init__(self, cost: str = "") -> None:
        self.servers: Any = FakeServers([FakeServer(ServerSpec("files"), tools=[tool("files__read")])])
        self.box = Toolbox([tool("one"), tool("two", runs=False)], self.servers)
        loop = ToolLoop(self.box, Approvals(["one"]))
        self.err = io.StringIO()
        streams = Streams("never", stdout=io.StringIO(), stderr=self.err)
        self.commands = ReplTools(RunTools(loop, self.servers), streams, lambda line: streams.note(line + cost), sizes)

    @property
    def said(self) -> str:
        return self.err.getvalue()


def test_tools_are_listed_with_what_their_calls_do() -> None:
    typed = Typed()
    typed.box.disable("two")
    typed.commands.tools("")
    assert typed.said.splitlines() == [
        "one          runs  8 tokens  Does it.",
        "two          off   8 tokens  Does it.",
        "files__read  asks  9 tokens  Does it.",
        "about 17 tokens of every prompt",
    ]
    typed.box.enable("two")
    typed.commands.tools("")
    assert "two          described" in typed.said
    assert typed.said.endswith("about 25 tokens of every prompt\n")


def test_half_a_surrogate_pair_in_a_definition_is_counted_too() -> None:
    typed = Typed()
    typed.box._fixed[:] = [tool("one", words="\ud800")]
    typed.commands.tools("")
    assert "one          runs  6 tokens  \\ud800\n" in typed.said


def test_a_change_says_what_it_costs() -> None:
    typed = Typed(cost="; 1,234 tokens")
    typed.commands.tools("disable files__*")
    assert "files__read: no longer told; 1,234 tokens\n" in typed.said
    typed.commands.tools("disable files__*")
    assert "nothing to disable" in typed.said
    typed.commands.tools("enable *")
    assert "files__read: told to the model" in typed.said


@pytest.mark.parametrize("argument", ["enable", "remove one", "enable "])
def test_what_can_not_be_meant(argument: str) -> None:
    with pytest.raises(UsageError, match="takes enable NAME or disable NAME"):
        Typed().commands.tools(argument)
    with pytest.raises(UsageError, match="there is no tool nine"):
        Typed().commands.tools("enable nine")


def test_servers_are_listed_ended_and_started() -> None:
    typed = Typed(cost="; 99 tokens")
    typed.commands.mcp("")
    assert typed.said == "files  connected, 1 tool, about 9 tokens\n"
    typed.commands.mcp("disable files")
    assert typed.said.endswith("files  off; 99 tokens\n")
    assert [one.name for one in typed.box.offered] == ["one", "two"]
    typed.commands.mcp("enable files")
    assert [one.name for one in typed.box.offered] == ["one", "two", "files__read"]


def test_a_server_that_lists_too_much_or_nothing() -> None:
    typed = Typed()
    (server,) = typed.servers.servers
    server.left_out = "5 tools (a, b, c, …)"
    typed.commands.mcp("")
    server.tools, server.left_out = [], ""
    typed.commands.mcp("")
    assert typed.said.splitlines() == [
        "files  connected, 1 tool, about 9 tokens; left out: 5 tools (a, b, c, …)",
        "files  connected, 0 tools",
    ]


def test_without_any() -> None:
    err = io.StringIO()
    commands = ReplTools(RunTools(), Streams("never", stdout=io.StringIO(), stderr=err), lambda _: None, sizes)
    commands.tools("")
    commands.mcp("enable x")
    assert "--tools FILE" in err.getvalue()
    assert "--mcp CONFIG" in err.getvalue()
