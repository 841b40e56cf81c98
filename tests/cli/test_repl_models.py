"""Another model in the middle of a chat: what goes along, what stays when it can't be loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli import repl_models
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.engine_access import ModelFacts
from mlxchat.cli.model_host import ModelHost, Start
from mlxchat.cli.repl_models import ReplModels
from mlxchat.cli.saved_chat import SavedChat
from mlxchat.cli.streams import Streams
from mlxchat.engine.options import EngineOptions
from mlxchat.errors import ModelIncomplete, ModelNotFound
from support.fake_engine import FakeChat, FakeEngine
from support.picture_files import png_file
from support.repl_talk import Conversation, kept

pytestmark = pytest.mark.plain

PATIENCE_S = 30.0


@dataclass
class Garage:
    """Makes engines, and notes what became of them. `broken` can't be loaded; `held` waits until it is let go."""

    engines: list[FakeEngine] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    held: dict[str, threading.Event] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    ended: list[BaseException] = field(default_factory=list)
    prepared: list[tuple[str, int]] = field(default_factory=list)
    explained: threading.Event = field(default_factory=threading.Event)

    def tell(self, line: str) -> None:
        """Called by the thread that loads: a cause, then a help line."""
        self.told.append(line)
        if len(self.told) == 2:
            self.explained.set()

    def start(self, options: EngineOptions, on_notice: Callable[[str], None]) -> FakeEngine:
        if options.model in self.held:
            assert self.held[options.model].wait(PATIENCE_S)
        if options.model in self.broken:
            raise ModelIncomplete(f"{options.model} is broken", "take another")
        self.prepared.append((options.model, sum(not engine.closed for engine in self.engines)))
        self.engines.append(FakeEngine(options))
        return self.engines[-1]

    @property
    def open(self) -> list[str]:
        """Names of the engines that aren't closed."""
        return [engine.options.model for engine in self.engines if not engine.closed]


@pytest.fixture
def garage(monkeypatch: pytest.MonkeyPatch) -> Garage:
    made = Garage()
    monkeypatch.setattr(repl_models, "start_engine", made.start)
    monkeypatch.setattr(repl_models, "ensure_model", lambda name, **more: None)
    monkeypatch.setattr(repl_models, "model_facts", lambda name: ModelFacts(name, 4096, 4096))
    monkeypatch.setattr(repl_models, "sees_pictures", lambda name, offline: name == "seeing")
    monkeypatch.setattr(repl_models, "fits_beside", lambda name: True)
    return made


class Driven(Conversation):
    """A conversation whose engines come from a garage."""

    def __init__(self, home: Path, garage: Garage, *lines: Any, **more: Any) -> None:
        self._garage = garage
        host = ModelHost(self._opened, Streams("never"), garage.tell, garage.ended.append)  # type: ignore[arg-type]
        self._host = host
        super().__init__(home, *lines, host=host, **more)
        host.close()

    def _opened(self, engine: FakeEngine, saved: SavedChat) -> FakeChat:
        self.chats.append(FakeChat(engine, saved.system, saved.history, saved.recorder, saved.day, tree=saved.tree))
        return self.chats[-1]

    def _chat(self, saved: SavedChat) -> FakeChat:
        self.chats = []
        start = Start("fake", lambda: self._garage.start(EngineOptions("fake"), print), saved)  # type: ignore[arg-type, return-value]
        chat: Any = self._host.begin(start)()
        return chat

    def _new(self, saved: SavedChat) -> Any:
        return self._host.open(saved)


def test_the_chat_goes_on_and_the_old_engine_goes(home: Path, garage: Garage) -> None:
    held = Driven(home, garage, "say one", "/model other", "say two", "/model", "/undo", "/redo", system="Be brief.")
    assert held.messages == ["s:Be brief.", "u:say one", "a:one", "u:say two", "a:two"]
    assert "other · context 4,096 tokens · goes on with this chat" in held.said
    assert "other; /model NAME goes on with another" in held.said
    assert [engine.options.model for engine in garage.engines] == ["fake", "other"]
    assert garage.open == []
    saved = held.read(held.first)
    assert kept(saved) == held.messages
    assert [entry.model for entry in saved.entries if entry.message.role == "assistant"] == ["fake", "other"]
    assert saved.settings.model == "other"


def test_template_and_adapter_stay_with_the_model_they_were_for(home: Path, garage: Garage) -> None:
    flags = ChatFlags(model="fake", template="chatml", adapter=str(home))
    held = Driven(home, garage, "say one", "/model other", "say two", flags=flags)
    assert (garage.engines[-1].options.template, garage.engines[-1].options.adapter) == (None, None)
    settings = held.read(held.first).settings
    assert (settings.model, settings.template, settings.adapter) == ("other", None, None)


def test_it_goes_on_where_it_stands_and_keeps_its_branches(home: Path, garage: Garage) -> None:
    held = Driven(home, garage, "say one", "say two", "/undo", "/model other", "say three", "/tree 4")
    assert held.messages == ["u:say one", "a:one", "u:say two", "a:two"]


def test_the_tree_knows_who_said_what(home: Path, garage: Garage) -> None:
    """So that no model is given ids of another one's vocabulary (tests/engine/test_conversation_tree.py)."""
    chat = Driven(home, garage, "say one", "/model other", "say two").chat
    assert chat.tree.model == "other"
    assert [node.model for node in chat.tree.path(chat.messages)] == [None, "fake", None, "other"]


def test_a_model_that_cannot_be_loaded_changes_nothing(home: Path, garage: Garage) -> None:
    garage.broken.add("other")

    def once_it_is_told() -> str:
        assert garage.explained.wait(PATIENCE_S)
        return "say two"

    held = Driven(home, garage, "say one", "/model other", once_it_is_told)
    assert held.messages == ["u:say one", "a:one", "u:say two", "a:two"]
    assert garage.told == ["mlxchat: other is broken", "take another"]
    assert [engine.options.model for engine in garage.engines] == ["fake"]
    assert held.read(held.first).settings.model == "fake"
    assert garage.ended == []


def test_the_message_that_waited_for_it_comes_back(home: Path, garage: Garage) -> None:
    """It was meant for the other model: the one at hand isn't asked in its place."""
    garage.broken.add("other")
    garage.held["other"] = threading.Event()

    def waits() -> str:
        threading.Timer(0.2, garage.held["other"].set).start()
        return "say two"

    held = Driven(home, garage, "say one", "/model other", waits)
    assert held.messages == ["u:say one", "a:one"]
    assert held.typist.drafts[-1] == "say two"
    assert "mlxchat: other is broken\ntake another\n" in held.said


def test_without_room_for_both_the_old_one_goes_first(
    home: Path, garage: Garage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repl_models, "fits_beside", lambda name: False)
    held = Driven(home, garage, "say one", "/model other", "say two")
    assert held.messages == ["u:say one", "a:one", "u:say two", "a:two"]
    assert garage.prepared == [("fake", 0), ("other", 0)]


def test_with_room_it_stays_until_the_other_one_is_there(home: Path, garage: Garage) -> None:
    Driven(home, garage, "say one", "/model other", "say two")
    assert garage.prepared == [("fake", 0), ("other", 1)]


def test_it_comes_back_if_the_other_one_cannot_be_loaded(
    home: Path, garage: Garage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repl_models, "fits_beside", lambda name: False)
    garage.broken.add("other")
    held = Driven(home, garage, "say one", "/model other", "say two")
    assert held.messages == ["u:say one", "a:one", "u:say two", "a:two"]
    assert garage.told == ["mlxchat: other is broken", "take another", "going back to fake"]
    assert garage.prepared == [("fake", 0), ("fake", 0)]
    assert held.read(held.first).settings.model == "fake"


def test_without_any_model_the_program_ends(home: Path, garage: Garage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repl_models, "fits_beside", lambda name: False)

    def gone() -> str:
        garage.broken |= {"other", "fake"}
        return "/model other"

    Driven(home, garage, "say one", gone, "say two")
    assert [type(error) for error in garage.ended] == [ModelIncomplete]


@pytest.mark.parametrize(("line", "cause"), [("/model fake", "fake is the model of this chat")])
def test_what_is_no_other_model(home: Path, garage: Garage, line: str, cause: str) -> None:
    held = Driven(home, garage, line)
    assert f"mlxchat: {cause}\n" in held.said
    assert len(garage.engines) == 1


def test_one_that_is_not_there_is_said_before_anything_changes(
    home: Path, garage: Garage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str, **more: Any) -> None:
        raise ModelNotFound(f"there is no model {name}", "mlxchat models list")

    monkeypatch.setattr(repl_models, "ensure_model", absent)
    held = Driven(home, garage, "say one", "/model absent", "say two")
    assert "mlxchat: there is no model absent\n/models lists those on this machine\n" in held.said
    assert held.typist.drafts[2] == "/model absent"
    assert len(garage.engines) == 1


def test_a_chat_with_pictures_needs_one_that_sees(home: Path, garage: Garage) -> None:
    picture = png_file(home / "a.png")
    held = Driven(home, garage, f"/image {picture}", "say one", "/model blind", "/model seeing", "say two")
    assert "blind is a text model and can't see pictures\nchoose one with vision, or begin a chat" in held.said
    assert "(-m)" not in held.said
    assert [engine.options.model for engine in garage.engines] == ["fake", "seeing"]


def test_another_chat_is_loaded_on_the_model_that_answers(home: Path, garage: Garage) -> None:
    first = Driven(home, garage, "/model other", "say old").first
    held = Driven(home, garage, f"/load {first}", "/model other", f"/load {first}", "say new")
    assert f"/model other first, or leave, then: mlxchat -r {first}" in held.said
    assert held.messages == ["u:say old", "a:old", "u:say new", "a:new"]


def test_the_models_on_this_machine(home: Path, garage: Garage, smollm2_line: str) -> None:
    assert smollm2_line in Driven(home, garage, "/models").said


@pytest.fixture
def smollm2_line(monkeypatch: pytest.MonkeyPatch) -> str:
    lines = ["* fake   4-bit, 1 MB, context 2,048"]
    monkeypatch.setattr(repl_models, "model_lines", lambda current: lines if current == "fake" else [])
    return lines[0]


def test_the_group_has_both_commands() -> None:
    nothing: Any = None
    assert set(ReplModels(nothing, nothing, None).commands) == {"/model", "/models"}
