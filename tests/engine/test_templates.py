"""Built-in templates, templates from files, and what a template's refusal looks like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.messages import Message, ToolCall, assistant, system, tool_result, user
from mlxchat.engine.options import ThinkingOptions
from mlxchat.engine.prompts import PromptRenderer
from mlxchat.engine.template_files import built_in_names, resolve
from mlxchat.errors import DataError, InputError, TemplateError, UsageError
from support.replies import TOOLS
from support.tiny_tokenizer import Family

pytestmark = pytest.mark.exact
Loader = Callable[[Family], Any]


def think(tokenizer: Any) -> PromptRenderer:
    return PromptRenderer(tokenizer, *resolve("chatml-think", tokenizer))


def test_reasoning_is_kept_after_the_last_user_message_and_dropped_before(tokenizer_of: Loader) -> None:
    renderer = think(tokenizer_of("chatml"))
    call = Message(
        "assistant", (), reasoning="second", tool_calls=(ToolCall("abcdefghi", "get_weather", {"city": "P"}),)
    )
    messages = [
        system("Sys"),
        user("one"),
        assistant("1", "first"),
        user("two"),
        call,
        tool_result("sunny", "abcdefghi"),
    ]
    prompt = renderer.render(messages, tools=TOOLS)
    assert "first" not in prompt.text
    assert "<think>\nsecond\n</think>\n\n<tool_call>" in prompt.text
    assert prompt.text.endswith("<|im_start|>assistant\n<think>\n")
    assert prompt.reasoning_open
    wrapped = [*messages[:-1], user("<tool_response>\nsunny\n</tool_response>")]
    assert "second" in renderer.render(wrapped, tools=TOOLS).text
    assert "second" not in renderer.render([*messages[:-1], user("three")], tools=TOOLS).text


def test_thinking_off_leaves_no_scaffold(tokenizer_of: Loader) -> None:
    prompt = think(tokenizer_of("chatml")).render([user("Hi")], thinking=ThinkingOptions(enabled=False))
    assert prompt.text.endswith("<|im_start|>assistant\n")
    assert (prompt.scaffold_text, prompt.reasoning_open) == ("", False)


def test_gemma_keeps_its_own_turns(tokenizer_of: Loader) -> None:
    tokenizer = tokenizer_of("gemma3")
    renderer = think(tokenizer)
    prompt = renderer.render([system("Sys"), user("Hi"), assistant("Yes", "hm"), user("Go")])
    assert prompt.text == (
        "<bos><start_of_turn>system\nSys<end_of_turn>\n<start_of_turn>user\nHi<end_of_turn>\n"
        "<start_of_turn>model\nYes<end_of_turn>\n<start_of_turn>user\nGo<end_of_turn>\n<start_of_turn>model\n<think>\n"
    )
    assert renderer.turn_end_ids == (tokenizer.convert_tokens_to_ids("<end_of_turn>"),)
    assert tokenizer.decode(renderer.budget_close_ids) == "\n</think>\n\n"
    assert tokenizer.decode(renderer.close_ids) == "</think>"


def test_plain_built_ins(tokenizer_of: Loader) -> None:
    assert built_in_names() == ["chatml", "chatml-think"]
    tokenizer = tokenizer_of("qwen3")
    prompt = PromptRenderer(tokenizer, *resolve("chatml", tokenizer)).render([user("Hi")])
    assert prompt.text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_none_is_the_models_own(tokenizer_of: Loader) -> None:
    assert resolve(None, tokenizer_of("qwen3"))[0] is None


def test_unknown_name_lists_the_built_ins(tokenizer_of: Loader) -> None:
    with pytest.raises(UsageError) as caught:
        resolve("chatml-thin", tokenizer_of("chatml"))
    assert "chatml-think" in caught.value.hint


def test_a_built_in_needs_turn_tokens(tokenizer_of: Loader) -> None:
    with pytest.raises(TemplateError, match="turn tokens"):
        resolve("chatml", tokenizer_of("deepseek_r1"))


def test_template_files(tokenizer_of: Loader, tmp_path: Path) -> None:
    tokenizer = tokenizer_of("chatml")
    file = tmp_path / "own.jinja"
    file.write_text("{{ messages[0].content }}", encoding="utf-8")
    source, label = resolve(str(file), tokenizer)
    assert (source, label) == ("{{ messages[0].content }}", "own.jinja")
    with pytest.raises(InputError):
        resolve(str(tmp_path / "missing.jinja"), tokenizer)
    with pytest.raises(InputError):
        resolve(str(tmp_path), tokenizer)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError):
        resolve(str(file), tokenizer)


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("{{ raise_exception('No system turn,\nplease.') }}", "No system turn, please."),
        ("{% if %}", "Expected an expression"),
        ("{{ messages.nothing.at_all }}", "has no attribute 'nothing'"),
        ("{{ 1 + 'a' }}", "unsupported operand"),
    ],
)
def test_a_refusal_is_one_line(tokenizer_of: Loader, source: str, cause: str) -> None:
    with pytest.raises(TemplateError) as caught:
        PromptRenderer(tokenizer_of("chatml"), source, "own.jinja").render([user("Hi")])
    assert cause in caught.value.message
    assert "\n" not in caught.value.message
    assert "own.jinja" in caught.value.message
    assert "--template" in caught.value.hint


def test_no_template(tokenizer_of: Loader) -> None:
    import copy

    bare = copy.copy(tokenizer_of("chatml"))
    bare.has_chat_template = False
    with pytest.raises(TemplateError) as caught:
        PromptRenderer(bare)
    assert "--template" in caught.value.hint


def test_roles_that_a_template_refuses(tokenizer_of: Loader) -> None:
    with pytest.raises(TemplateError, match="must alternate"):
        PromptRenderer(tokenizer_of("gemma3")).render([user("a"), user("b")])


def test_a_template_that_wants_arguments_as_text(tokenizer_of: Loader) -> None:
    source = "{% for m in messages %}<|im_start|>{{ m.content }}{% for c in m.tool_calls or [] %}{{ '=' + c.function.arguments }}{% endfor %}<|im_end|>{% endfor %}"  # noqa: E501
    call = Message("assistant", (), tool_calls=(ToolCall("a", "f", {"x": 1}),))
    prompt = PromptRenderer(tokenizer_of("chatml"), source, "own").render([user("Hi"), call])
    assert '={"x": 1}<|im_end|>' in prompt.text


def test_gpt_oss_takes_words_or_reasoning_beside_a_call(tokenizer_of: Loader) -> None:
    renderer = PromptRenderer(tokenizer_of("gpt_oss"))
    call = Message("assistant", user("Let me look.").content, reasoning="hm", tool_calls=(ToolCall("a", "f", {}),))
    text = renderer.render([user("Hi"), call, tool_result("ok", "a")], tools=TOOLS).text
    assert "<|channel|>analysis<|message|>hm\n\nLet me look.<|end|>" in text


def test_files_and_pictures_in_a_message(tokenizer_of: Loader) -> None:
    from mlxchat.engine.messages import FilePart, ImagePart, TextPart
    from mlxchat.engine.rendering import plain_message

    message = Message("user", (TextPart("see"), FilePart("a.txt", "words"), ImagePart("cat.png")))
    assert plain_message(message)["content"] == [
        {"type": "text", "text": "see"},
        {"type": "text", "text": "a.txt:\nwords\n"},
        {"type": "image"},
    ]
