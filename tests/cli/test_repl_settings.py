"""What /set, /think and /system change, at once and for the next run; and what /tokens and /prompt show."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.live_settings import NAMES, changed, shown
from mlxchat.cli.sampling_settings import FLAGS
from mlxchat.engine.options import SamplingOptions, ThinkingOptions
from mlxchat.transcripts.session_recorder import SessionRecorder
from support.repl_talk import Conversation, everything, kept

pytestmark = pytest.mark.plain


def resumed(home: Path, held: Conversation) -> Conversation:
    return Conversation(home, "say on", flags=ChatFlags(model="fake", resume=held.first))


class TestSet:
    def test_it_counts_from_the_next_message_on(self, home: Path) -> None:
        held = Conversation(
            home, "say one", "/set temp 0.5", "/set top-k=7", "say two", "/set temp default", "say three"
        )
        sampling = [options.sampling for options in held.chat.options]
        assert [(one.temp, one.top_k) for one in sampling] == [(None, None), (0.5, 7), (None, 7)]

    def test_a_chat_that_goes_on_has_it_too(self, home: Path) -> None:
        held = Conversation(home, "say one", "/set temp 0.5", "/set stop END", "/set repetition_penalty 1.2")
        [options] = resumed(home, held).chat.options
        assert (options.sampling.temp, options.sampling.stop) == (0.5, ("END",))
        assert options.sampling.extra == {"repetition_penalty": 1.2}

    def test_a_recorder_that_is_not_told_is_caught(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SessionRecorder, "configure", lambda self, settings: None)
            held = Conversation(home, "say one", "/set temp 0.5")
        assert resumed(home, held).chat.options[0].sampling.temp is None

    def test_before_the_first_message_it_is_in_the_header(self, home: Path) -> None:
        held = Conversation(home, "/set seed 5", "say one")
        saved = held.read(held.first)
        assert saved.settings.sampling.seed == 5
        assert (held.sessions / f"{held.first}.jsonl").read_text().count('"settings"') == 0

    def test_alone_it_shows_all(self, home: Path) -> None:
        said = Conversation(home, "/set", "/set xtc_probability 0.5", "/set", "/set temp").said
        values = {
            "temp": "0.6 (the model’s own)",
            "top_p": "off (0, the default)",
            "repetition_penalty": "1.1 (the model’s own)",
            "seed": "another one each time",
            "thinking": "as the template has it",
        }
        for name, value in values.items():
            assert said.count(f"{name:<18}  {value}\n") == 2
        for name in FLAGS:
            assert said.count(f"\n{name:<18}  ") >= 1
        assert "xtc_probability     0.5\n" in said
        assert "xtc_probability  0.5\n" in said
        assert said.endswith("temp          0.6 (the model’s own)\n")

    @pytest.mark.parametrize(
        ("line", "cause"),
        [
            ("/set tmep 1", "there is no setting tmep; did you mean temp?"),
            ("/set temp hot", "temp takes a number, 0 or more, not `hot`"),
            ("/set temp -1", "temp takes a number, 0 or more, not `-1`"),
            ("/set temp nan", "temp takes a number, 0 or more, not `nan`"),
            ("/set top_p 2", "top_p takes a number from 0 to 1, not `2`"),
            ("/set max_tokens 0", "max_tokens takes a whole number, 1 or more, not `0`"),
            ("/set min_tokens_to_keep 1.5", "min_tokens_to_keep takes a whole number, 1 or more, not `1.5`"),
            ("/think maybe", "/think doesn't know `maybe`"),
            ("/think budget lots", "/think budget takes a whole number, 0 or more, not `lots`"),
        ],
    )
    def test_what_is_no_setting_changes_nothing(self, home: Path, line: str, cause: str) -> None:
        held = Conversation(home, line, "say one")
        assert f"mlxchat: {cause}\n" in held.said
        assert held.typist.drafts[1] == line
        assert held.chat.options[0].sampling == SamplingOptions()

    @pytest.mark.parametrize("name", NAMES)
    def test_every_setting_can_be_changed_shown_and_left_to_the_model(self, name: str) -> None:
        value = "END" if name == "stop" else "1" if name != "xtc_threshold" else "0.5"
        sampling = changed(SamplingOptions(), name, value)
        assert sampling != SamplingOptions()
        assert value in shown(sampling, name).split(maxsplit=1)[1]
        assert changed(sampling, name, "default") == SamplingOptions()

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("top_p", "0", "off (0)"),
            ("top_p", "1", "off (1)"),
            ("top_p", "0.9", "0.9"),
            ("top_k", "0", "off (0)"),
            ("top_k", "1", "1"),
            ("min_p", "0", "off (0)"),
            ("xtc_probability", "0", "off (0)"),
            ("repetition_penalty", "1", "off (1)"),
            ("frequency_penalty", "0", "off (0)"),
            ("temp", "0", "0.0"),
            ("seed", "0", "0"),
        ],
    )
    def test_a_value_that_turns_a_sampler_off_says_so(self, name: str, value: str, words: str) -> None:
        assert shown(changed(SamplingOptions(), name, value), name) == f"{name:<12}  {words}"

    def test_off_is_said_of_what_nobody_chose_too(self) -> None:
        assert shown(SamplingOptions(), "top_k", {"top_k": (0, False)}) == "top_k         off (0, the default)"
        assert shown(SamplingOptions(), "top_p", {"top_p": (1.0, True)}) == "top_p         off (1, the model’s own)"


class TestThink:
    def test_on_off_and_budget(self, home: Path) -> None:
        lines = ["/think on", "/think budget 20", "say one", "/think off", "say two", "/think budget 5", "say three"]
        held = Conversation(home, *lines, "/think budget default", "/think")
        assert [options.thinking for options in held.chat.options] == [
            ThinkingOptions(True, 20),
            ThinkingOptions(False, None),
            ThinkingOptions(None, 5),
        ]
        assert "thinking is on, at most 20 tokens" in held.said
        assert held.said.endswith("thinking is as the template has it\n")
        assert held.read(held.first).settings.thinking == ThinkingOptions(None, None)

    def test_what_it_costs_is_said_where_the_template_says_it_first(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "prefilled" not in Conversation(home, "say one", "/think off").said
        monkeypatch.setattr("support.fake_engine.FakeOutlook.cached", property(lambda self: next(cached)))
        cached = iter([7, 0, 0, 0])
        assert "thinking is off; 7 of 7 tokens will be prefilled" in Conversation(home, "say one", "/think off").said

    def test_shown_or_not(self, home: Path) -> None:
        held = Conversation(home, "/think hide", "think one")
        assert not held.repl._output.reasoning_shown
        assert "reasoning is hidden from here on" in held.said


class TestSystem:
    def test_another_one_goes_on_with_the_chat_on_a_branch(self, home: Path) -> None:
        held = Conversation(home, "say one", "/system Be long.", "/system", "say two", system="Be brief.")
        assert held.messages == ["s:Be long.", "u:say one", "a:one", "u:say two", "a:two"]
        assert "system prompt: “Be long.”, on a new branch; 5 of 10 tokens will be prefilled with the next" in held.said
        assert "\nBe long.\n" in held.said
        saved = held.read(held.first)
        assert kept(saved) == held.messages
        assert everything(saved)[:3] == ["s:Be brief.", "u:say one", "a:one"]
        assert saved.settings.system == "Be long."

    def test_before_the_first_message(self, home: Path) -> None:
        held = Conversation(home, "/system Be long.", "say one")
        saved = held.read(held.first)
        assert everything(saved) == ["s:Be long.", "u:say one", "a:one"]
        assert saved.settings.system == "Be long."

    def test_none_a_file_and_the_same_again(self, home: Path) -> None:
        (home / "s.txt").write_text("From a file.")
        held = Conversation(
            home, "say one", "/system none", "/system", f"/system @{home}/s.txt", "/system From a file."
        )
        assert held.messages == ["s:From a file.", "u:say one", "a:one"]
        assert "there is no system prompt" in held.said
        assert held.said.endswith("that is the system prompt already\n")
        assert kept(held.read(held.first)) == held.messages

    def test_a_new_chat_has_it_too(self, home: Path) -> None:
        assert Conversation(home, "/system Be long.", "/new", "say one").messages[0] == "s:Be long."

    def test_a_chat_that_goes_on_has_it(self, home: Path) -> None:
        held = Conversation(home, "say one", "/system Be long.")
        assert resumed(home, held).messages == ["s:Be long.", "u:say one", "a:one", "u:say on", "a:on"]


class TestLooking:
    def test_tokens(self, home: Path) -> None:
        said = Conversation(home, "say one", "/tokens", "/tokens three words here", "/tokens one", system="s").said
        assert "prompt   9 of 2,048 tokens (0 %) with the next message\n" in said
        assert "system   1 in 1 message\nyou      2 in 1 message\nmodel    1 in 1 message\n3 tokens\n1 token\n" in said

    def test_the_prompt_of_the_last_answer_and_of_a_text(self, home: Path) -> None:
        said = Conversation(home, "/prompt", "say one", "/prompt", "/prompt and then", system="s").said
        assert said.startswith("nothing was sent yet; /prompt TEXT shows what TEXT would be sent as\n")
        assert said.endswith(
            "<system> s\n<user> say one\n<system> s\n<user> say one\n<assistant> one\n<user> and then\n"
        )

    def test_its_ids_cached_and_new(self, home: Path) -> None:
        said = Conversation(home, "say one two three four five six seven eight nine ten eleven", "/prompt --ids").said
        assert said.endswith("cached   0  0 1 2 3 4 5\nnew      6  6 7 8 9 10 11 12\n")
