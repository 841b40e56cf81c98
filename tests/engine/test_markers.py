"""The streaming parser: the same segments for any chunking, markers split or merged, where the answer starts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlxchat.engine import markers as module
from mlxchat.engine.markers import MarkerParser, Markers, Segment, markers_for, parse
from support.tiny_tokenizer import FAMILIES, Family, load

pytestmark = pytest.mark.exact

THINK = Markers(reasoning=(("<think>", "</think>"),), tool=("<tool_call>", "</tool_call>"))
HARMONY = Markers(harmony=True)
GEMMA = Markers(reasoning=(("<|channel>thought", "<channel|>"),), tool=("<|tool_call>", "<tool_call|>"))

_PIECES = ["<think>", "</think>", "<tool_call>", "</tool_call>", "a", " ", "\n", "<", "</", "think", ">", "tool",
           "<|end|>", "<|channel|>", "analysis", "final", "<|message|>", "<|start|>assistant",
           "commentary to=functions.f", "{}", "<|channel>thought", "<channel|>"]  # fmt: skip


def _chunked(markers: Markers, chunks: list[str], opened: bool) -> list[Segment]:
    parser = MarkerParser(markers, opened)
    out: list[Segment] = []
    for chunk in chunks:
        out += parser.feed(chunk)
    return module._merged(out + parser.finish())


def _check_chunking(markers: Markers, pieces: list[str], cuts: list[int], opened: bool) -> None:
    text = "".join(pieces)
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    chunks = [text[a:b] for a, b in pairwise(edges)]
    whole = _chunked(markers, [text], opened)
    assert _chunked(markers, chunks, opened) == whole
    assert _chunked(markers, list(text), opened) == whole


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([THINK, HARMONY, GEMMA]),
    st.lists(st.sampled_from(_PIECES), max_size=14),
    st.lists(st.integers(0, 10_000), max_size=8),
    st.booleans(),
)
def test_any_chunking_gives_the_same_segments(
    markers: Markers, pieces: list[str], cuts: list[int], opened: bool
) -> None:
    _check_chunking(markers, pieces, cuts, opened)


def test_planted_fault_nothing_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_held_from", lambda text, markers: len(text))
    with pytest.raises(AssertionError):
        _check_chunking(THINK, ["a", "<think>", "b", "</think>", "c"], [], False)


@pytest.mark.parametrize(
    ("markers", "opened", "text", "expected"),
    [
        (THINK, True, "thought\n</think>\n\nanswer", [("reasoning", "thought\n"), ("text", "answer")]),
        (THINK, True, "never closed", [("reasoning", "never closed")]),
        (THINK, False, "plain < answer", [("text", "plain < answer")]),
        (THINK, False, "<think>\na</think>b<think>c</think> d",
         [("reasoning", "a"), ("text", "b"), ("reasoning", "c"), ("text", "d")]),
        (THINK, False, "hi <tool_call>\n{}\n</tool_call>",
         [("text", "hi "), ("tool", "<tool_call>\n{}\n</tool_call>")]),
        (THINK, True, "so<tool_call>x</tool_call>", [("reasoning", "so"), ("tool", "<tool_call>x</tool_call>")]),
        (THINK, False, "x<tool_call>cut", [("text", "x"), ("tool", "<tool_call>cut")]),
        (THINK, False, "ends with </thin", [("text", "ends with </thin")]),
        (GEMMA, False, "<|channel>thought\nhm\n<channel|>yes", [("reasoning", "hm\n"), ("text", "yes")]),
        (HARMONY, False, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes",
         [("reasoning", "hm"), ("text", "yes")]),
        (HARMONY, False, "no channel at all", [("text", "no channel at all")]),
        (HARMONY, False, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}",
         [("tool", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}")]),
        (HARMONY, False, " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
         [("tool", " to=functions.f<|channel|>commentary json<|message|>{}")]),
    ],
)  # fmt: skip
def test_segments(markers: Markers, opened: bool, text: str, expected: list[tuple[str, str]]) -> None:
    segments, _ = parse(markers, text, opened)
    assert [(segment.kind, segment.text) for segment in segments] == expected


def test_only_a_possible_marker_is_held_back() -> None:
    parser = MarkerParser(THINK)
    assert parser.feed("an answer <") == [Segment("text", "an answer ")]
    assert parser.feed("b") == [Segment("text", "<b")]
    assert parser.feed("</th") == [Segment("text", "</th")]  # nothing is open: a closing marker is ordinary text


@pytest.mark.parametrize(
    ("chunks", "opened", "start"),
    [
        (["so", "\n</think>", "\n\n", "Paris", "."], True, 3),
        (["so", "</th", "ink>", "\n", " Paris"], True, 4),
        (["so", "</think>\n\nPar", "is"], True, 1),
        (["so", "</think>", "", "", "é"], True, 2),  # a character of three tokens
        (["so", "</think>", "\n", "<tool_call>", "{}"], True, 3),
        (["so", "far"], True, 2),
        (["Paris"], False, 0),
        ([" Paris"], False, 0),
    ],
)
def test_answer_start(chunks: list[str], opened: bool, start: int) -> None:
    parser = MarkerParser(THINK, opened)
    for chunk in chunks:
        parser.feed(chunk)
    parser.finish()
    assert parser.answer_start == start


def test_answer_start_in_harmony_is_its_channel() -> None:
    parser = MarkerParser(HARMONY)
    tokens = ["<|channel|>", "analysis", "<|message|>", "hm", "<|end|>", "<|start|>", "assistant", "<|channel|>",
              "final", "<|message|>", "yes"]  # fmt: skip
    for token in tokens:
        parser.feed(token)
    assert parser.answer_start == 7


@pytest.mark.parametrize(
    ("family", "reasoning", "tool"),
    [
        ("chatml", False, False), ("gemma3", False, False), ("qwen3", True, True), ("qwen36", True, True),
        ("gemma4", True, True), ("deepseek_r1", True, False),
    ],
)  # fmt: skip
def test_markers_of_a_family(tmp_path: Any, family: Family, reasoning: bool, tool: bool) -> None:
    found = markers_for(load(tmp_path, family), None)
    assert found.has_reasoning == reasoning
    assert (found.tool is not None) == tool
    assert not found.harmony


def test_markers_of_gpt_oss(tmp_path: Any) -> None:
    found = markers_for(load(tmp_path, "gpt_oss"), None)
    assert found.harmony
    assert found.close == "<|end|>"


def test_a_template_can_bring_markers_that_are_no_tokens(tmp_path: Any) -> None:
    found = markers_for(load(tmp_path, "chatml"), "... <think> ... </think> ...")
    assert found.reasoning == (("<think>", "</think>"),)
    assert found.close_text == "\n</think>\n\n"


def test_families_are_complete() -> None:
    assert len(FAMILIES) == 7
