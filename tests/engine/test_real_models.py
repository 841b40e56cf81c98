"""The pulled models themselves: they load quietly, tokenize as their makers' tokenizers do, and know Paris."""

from __future__ import annotations

import pytest
from mlxchat.engine import backend, loader
from mlxchat.engine.models import ModelFolder
from support.load_process import load_in_a_process

pytestmark = pytest.mark.real

SMOL_IDS = [504, 3575, 282, 4649, 314, 7042, 28, 216, 33, 34, 35, 36, 30]


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: ModelFolder) -> loader.LoadedModel:
    return loader.load(smollm2_folder)


@pytest.fixture(scope="module")
def gemma3(gemma3_folder: ModelFolder) -> loader.LoadedModel:
    return loader.load(gemma3_folder)


def greedy(loaded: loader.LoadedModel, ids: list[int], count: int) -> list[int]:
    """The most likely continuation, the whole prompt run again for each token: nothing to get wrong."""
    import mlx.core as mx

    found: list[int] = []
    for _ in range(count):
        token = int(mx.argmax(loaded.model(mx.array([ids + found]))[0, -1]).item())
        if token in loaded.eos_token_ids:
            break
        found.append(token)
    return found


def test_smollm2_answers_paris(smollm2: loader.LoadedModel) -> None:
    messages = [{"role": "user", "content": "What is the capital of France? One word."}]
    ids = smollm2.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert "Paris" in smollm2.tokenizer.decode(greedy(smollm2, ids, 12))


def test_smollm2_tokens(smollm2: loader.LoadedModel) -> None:
    encode = smollm2.tokenizer.encode
    assert encode("The capital of France is Paris, 1234.", add_special_tokens=False) == SMOL_IDS
    text = "Tabs\t\tand   runs\n\n\nof space, 日本語, 🎉, don't, x=1_000"
    assert smollm2.tokenizer.decode(encode(text, add_special_tokens=False)) == text
    assert smollm2.tokenizer.encode("<|im_start|>user\n", add_special_tokens=False) == [1, 4093, 198]
    assert smollm2.eos_token_ids == {0, 2}


def test_gemma3_tokens(gemma3: loader.LoadedModel) -> None:
    encode = gemma3.tokenizer.encode
    assert encode("The capital of France is") == [2, 818, 5279, 529, 7001, 563]
    assert encode("Hello  world\n\nx", add_special_tokens=False) == [9259, 138, 12392, 108, 236781]
    text = "Tabs\t\tand   runs\n\n\nof space, 日本語, 🎉, don't, x=1_000"
    assert gemma3.tokenizer.decode(encode(text, add_special_tokens=False)) == text
    assert gemma3.eos_token_ids == {1, 106}


def test_gemma3_template_speaks_its_turns(gemma3: loader.LoadedModel) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    text = gemma3.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == (
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>assistant\nHello<end_of_turn>\n"
        "<start_of_turn>assistant\n"
    )


def test_gemma3_predicts_english(gemma3: loader.LoadedModel) -> None:
    """Perplexity of plain prose; a wrong norm, rotary base, window or scale puts it in the hundreds and beyond."""
    import mlx.core as mx
    import mlx.nn as nn

    text = (
        "The river rises in the mountains and flows for nearly three hundred miles before it reaches the sea. "
        "Along its banks there are many small towns, most of which were founded in the nineteenth century by "
        "farmers who came to the valley because the land was cheap and the soil was good."
    )
    ids = gemma3.tokenizer.encode(text)
    loss = nn.losses.cross_entropy(gemma3.model(mx.array([ids]))[0, :-1], mx.array(ids[1:])).mean()
    assert 3 < float(mx.exp(loss).item()) < 30


def test_gemma3_cache_is_windows_and_three_global_layers(gemma3: loader.LoadedModel) -> None:
    kinds = [type(c).__name__ for c in gemma3.model.make_cache()]
    assert [i for i, kind in enumerate(kinds) if kind == "KVCache"] == [5, 11, 17]
    assert kinds.count("RotatingKVCache") == 15
    assert gemma3.kv_bytes_per_token == 3 * 2 * 256 * (4 if gemma3.dtype == "float32" else 2)


def test_the_real_model_opens_no_socket_and_says_nothing(smollm2_folder: ModelFolder) -> None:
    done = load_in_a_process("smollm2")
    assert done.stdout == "0\n"
    assert done.stderr == ""


def test_this_process_runs_on_a_fast_backend() -> None:
    assert backend.prepare().is_fast, backend.describe()
    assert backend.measure_gflops() > 30
