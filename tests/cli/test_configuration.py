"""Settings: which place goes before which, what is refused, and by whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.config_files import project_file, read_project
from mlxchat.cli.config_keys import KEYS
from mlxchat.cli.configuration import Configuration
from mlxchat.cli.replay_flags import ReplayFlags
from mlxchat.cli.tool_setup import ToolFiles
from mlxchat.engine.user_aliases import meaning
from mlxchat.errors import DataError, UsageError

pytestmark = pytest.mark.plain

HOSTILE = """
model = "~/elsewhere"
system = "@../secret.txt"
editor = "rm -rf"
tools = "tools.json"
mcp = "servers.json"
allow_tool = ["*"]
cache_dir = "/tmp/x"
cache_persist = true
save = false
offline = false
yes = true

[mcpServers.evil]
command = "sh"

[aliases]
smollm2 = "evil/model"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key in KEYS.values():
        monkeypatch.delenv(key.variable or "NONE", raising=False)
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "work" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "deep")
    return tmp_path


def write(home: Path, user: str = "", project: str = "") -> None:
    (home / "home" / "config.toml").write_text(user, encoding="utf-8")
    if project:
        (home / "work" / "deep" / "mlxchat.toml").write_text(project, encoding="utf-8")


def read(**environment: str) -> Configuration:
    return Configuration.read({f"MLXCHAT_{name.upper()}": text for name, text in environment.items()})


def test_flag_before_environment_before_project_before_user(home: Path) -> None:
    write(home, user="temp = 0.1\ntop_p = 0.2\ntop_k = 3\nmin_p = 0.4", project="temp = 0.5\ntop_p = 0.6\ntop_k = 7")
    chat = read(temp="0.8", top_p="0.9").applied(ChatFlags(temp=1.0)).for_new_chat()
    assert (chat.temp, chat.top_p, chat.top_k, chat.min_p, chat.seed) == (1.0, 0.9, 7, 0.4, None)


def test_what_a_saved_chat_keeps_waits_for_a_new_chat(home: Path) -> None:
    write(home, user='model = "x"\nsystem = "be brief"\ncolor = "never"\nsave = false\nahead = false')
    flags = read().applied(ChatFlags())
    assert (flags.model, flags.color, flags.no_save, flags.no_ahead) == (None, "never", True, True)
    assert flags.for_new_chat().model == "x"
    assert flags.for_new_chat().system == "be brief"


def test_every_key_has_its_flag() -> None:
    names = ChatFlags.__dataclass_fields__
    assert [key.name for key in KEYS.values() if key.flag and key.flag not in names] == []
    assert {key.name for key in KEYS.values() if key.project} == {
        *("model", "system", "template", "think", "think_budget"),
        *("temp", "top_p", "top_k", "min_p", "max_tokens", "seed", "options"),
    }, "what a project may set is decided here, and nowhere by chance"


def test_settings_give_way_to_flags_that_contradict_them(home: Path) -> None:
    write(home, user="cache_persist = true\nthink_budget = 9\noffline = true")
    read().applied(ChatFlags(no_save=True)).check()
    read().applied(ChatFlags(no_cache=True)).check()
    read().applied(ChatFlags(yes=True)).check()
    read().applied(ChatFlags(think=False)).for_new_chat().check()
    assert read().applied(ChatFlags()).cache_persist


def test_tools_are_named_in_the_users_file_and_give_way_to_a_schema(home: Path) -> None:
    write(home, user='tools = ["tools.json"]\nallow_tool = ["get_*"]\nmarkdown = false')
    flags = read().applied(ChatFlags())
    assert flags.tools == [str(home / "home" / "tools.json")]
    assert flags.allow_tool == ["get_*"]
    assert flags.no_markdown
    assert read().applied(ChatFlags(schema="{}")).tools is None
    assert read(mcp="a.json, b.json").value("mcp") == ["a.json", "b.json"]
    with pytest.raises(UsageError):
        ChatFlags(schema="{}", tools=["t"]).check()


def test_settings_for_tools_end_no_chat_that_has_none(home: Path) -> None:
    write(home, user='allow_tool = ["get_*"]\nmax_steps = 5')
    flags = read().applied(ChatFlags())
    assert (flags.allow_tool, flags.max_steps) == (None, None)
    ToolFiles(flags)
    for more in ({"tools": ["t.json"]}, {"mcp": ["m.json"]}, {"tool_schemas": ["t.json"]}):
        with_tools = read().applied(ChatFlags(**more))  # type: ignore[arg-type]
        assert (with_tools.allow_tool, with_tools.max_steps) == (["get_*"], 5)
    with pytest.raises(UsageError, match="--max-steps means nothing without tools"):
        ToolFiles(read().applied(ChatFlags(max_steps=3)))


def test_neither_do_they_end_one_under_a_schema(home: Path) -> None:
    write(home, user='tools = ["tools.json"]\nallow_tool = ["get_*"]\nmax_steps = 5')
    flags = read().applied(ChatFlags(schema="{}"))
    flags.check()
    assert ToolFiles(flags).tools == []


def test_a_run_without_the_tools_of_the_settings(home: Path) -> None:
    write(home, user='tools = ["tools.json"]\nmcp = ["mcp.json"]\nallow_tool = ["get_*"]\nmax_steps = 5')
    flags = read().applied(ChatFlags(no_tools=True))
    flags.check()
    assert (flags.tools, flags.mcp, flags.allow_tool, flags.max_steps) == (None, None, None, None)
    for given in ({"tools": ["t.json"]}, {"mcp": ["m.json"]}, {"tool_schemas": ["t.json"]}):
        with pytest.raises(UsageError, match="--no-tools and --"):
            read().applied(ChatFlags(no_tools=True, **given)).check()  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--allow-tool means nothing without tools"):
        ToolFiles(read().applied(ChatFlags(no_tools=True, allow_tool=["get_*"])))


def test_options_are_a_table(home: Path) -> None:
    write(home, user='[options]\nstop = ["A", "B"]\nrepetition_penalty = 1.1')
    flags = read().applied(ChatFlags(option=["repetition_penalty=1.5"])).for_new_chat()
    assert flags.option == ["stop=A", "stop=B", "repetition_penalty=1.1", "repetition_penalty=1.5"]
    assert flags.request_options().sampling.extra == {"repetition_penalty": 1.5}


@pytest.mark.parametrize(
    "text", ["temp = 'hot'", "temp = -1", "top_p = 2", "kv_bits = 5", "think = 1", "color = 'red'"]
)
def test_a_bad_value_of_the_users_is_an_error_that_names_file_and_key(text: str, home: Path) -> None:
    write(home, user=text)
    with pytest.raises(UsageError, match=rf"config\.toml: `{text.split()[0]}` takes"):
        read()


@pytest.mark.parametrize("text", ["cache_bytes = 'much'", "cache_ttl = 'soon'", "[options]\nnone = 1", "aliases = 3"])
def test_values_of_a_form_of_their_own(text: str, home: Path) -> None:
    write(home, user=text)
    with pytest.raises(UsageError):
        read()


def test_a_bad_variable_is_named(home: Path) -> None:
    with pytest.raises(UsageError, match="MLXCHAT_TEMP: `temp` takes a number"):
        read(temp="warm")
    assert read(think="off").value("think") is False
    assert read(temp="").value("temp") is None
    assert read(modle="x").notes == ["MLXCHAT_MODLE: no setting is called `modle`; did you mean `model`?"]
    assert read(test_gate="x", blas="off", debug="1").notes == []


def test_what_is_no_toml_is_said_with_its_place(home: Path) -> None:
    write(home, user="temp = \n")
    with pytest.raises(DataError, match="line 1"):
        read()


def test_an_unknown_key_is_named_with_the_likely_one(home: Path) -> None:
    write(home, user="tempp = 1\nmodel = 'x'")
    configuration = read()
    assert "no setting is called `tempp`; did you mean `temp`?" in configuration.notes[0]
    assert configuration.value("model") == "x"


def test_a_hostile_project_changes_nothing_and_is_named(home: Path) -> None:
    write(home, project=HOSTILE)
    configuration = read()
    assert configuration.project.values == {}
    assert configuration.project.aliases == {}
    named = "\n".join(configuration.notes)
    for name in (
        "model",
        "system",
        "editor",
        "tools",
        "mcp",
        "allow_tool",
        "cache_dir",
        "mcpServers",
        "aliases",
        "yes",
    ):
        assert name in named
    flags = configuration.applied(ChatFlags())
    assert flags.for_new_chat() == ChatFlags()
    assert configuration.editor() != "rm -rf"
    assert meaning("smollm2") == "smollm2"


@pytest.mark.parametrize("text", ["temp = \n", "temp = 'x'", "\x00", "a = 1\n" * 400_000, "a = " + "[" * 50_000])
def test_a_broken_project_costs_its_settings_and_no_more(text: str, home: Path) -> None:
    write(home, user="temp = 0.3", project=text)
    configuration = read()
    assert configuration.value("temp") == 0.3
    assert len(configuration.notes) == 1


def test_a_projects_name_can_not_forge_a_line(home: Path) -> None:
    write(home, project='"a\\nforged: line" = 1')
    assert [note.count("\n") for note in read().notes] == [0]


def test_another_users_file_is_not_obeyed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, project="temp = 0.5")
    monkeypatch.setattr("os.getuid", lambda: 12345)
    owned_by_root = (home / "work" / "deep" / "mlxchat.toml").stat().st_uid == 0
    assert (read().value("temp") == 0.5) is owned_by_root


def test_the_users_consent_is_not_for_a_projects_model(home: Path) -> None:
    write(home, project='model = "org/large"')
    assert read().applied(ChatFlags(yes=True)).for_new_chat().yes is False
    assert read().applied(ChatFlags(yes=True, model="mine")).for_new_chat().yes is True
    assert read(model="mine").applied(ChatFlags(yes=True)).for_new_chat().yes is True


def test_a_project_is_the_nearest_file_up_to_its_repository(home: Path) -> None:
    top, deep = home / "work", home / "work" / "deep"
    (top / "mlxchat.toml").write_text("seed = 1")
    assert project_file(deep) is None, "outside a repository only the folder itself"
    (top / ".git").mkdir()
    assert project_file(deep) == top / "mlxchat.toml"
    (deep / ".mlxchat.toml").write_text("seed = 2")
    assert project_file(deep) == deep / ".mlxchat.toml"
    (home / "mlxchat.toml").write_text("seed = 3")
    (deep / ".mlxchat.toml").unlink()
    (top / "mlxchat.toml").unlink()
    assert project_file(deep) is None, "nothing above the repository"


def test_paths_are_seen_from_the_file_that_names_them(home: Path) -> None:
    folder = home / "work" / "deep"
    (folder / "mlxchat.toml").write_text('system = "@prompts/a.txt"\nmodel = "./tiny"')
    source = read_project(folder / "mlxchat.toml")
    assert source.values == {"system": f"@{folder}/prompts/a.txt", "model": f"{folder}/tiny"}


def test_aliases_are_the_users(home: Path) -> None:
    write(home, user='[aliases]\nq = "org/model"')
    assert meaning("q") == "org/model"
    assert meaning("other") == "other"
    (home / "home" / "config.toml").write_text("broken =")
    assert meaning("q") == "q"


def test_a_replay_takes_the_model_and_no_sampling(home: Path) -> None:
    write(home, user='model = "x"\ntemp = 0.5\nkv_bits = 8')
    flags = read().applied_to_runs(ReplayFlags(["trace"]))
    assert (flags.model_name, flags.temp, flags.kv_bits) == ("x", None, 8)
    flags.check()
