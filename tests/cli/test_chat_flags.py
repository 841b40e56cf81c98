"""Options, checked against each other and turned into the engine's objects."""

from __future__ import annotations

import inspect
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli.chat_command import chat
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.sampling_settings import NAMES, NUMBERS, STOP, read_settings
from mlxchat.cli.sizes import parse_size
from mlxchat.engine.options import (
    CacheOptions,
    EngineOptions,
    KVQuantization,
    RequestOptions,
    SamplingOptions,
    ThinkingOptions,
)
from mlxchat.errors import UsageError

pytestmark = pytest.mark.plain


def test_every_option_has_its_field_with_the_same_default() -> None:
    parameters = {p.name: p.default for p in inspect.signature(chat).parameters.values() if p.name != "version"}
    of_settings = ("defaults", "model_of_project")
    assert parameters == {f.name: f.default for f in fields(ChatFlags) if f.name not in of_settings}


def test_without_flags_the_engine_gets_its_own_defaults() -> None:
    assert ChatFlags().engine_options() == EngineOptions()
    assert ChatFlags().request_options() == RequestOptions()


def test_every_flag_arrives() -> None:
    flags = ChatFlags(
        model="m",
        template="t",
        offline=True,
        no_cache=True,
        cache_dir="~/kv",
        cache_bytes="2GB",
        kv_bits=4,
        kv_group_size=32,
        temp=0.0,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        max_tokens=7,
        seed=3,
        think=True,
        think_budget=0,
        option=["stop=END", "repetition_penalty=1.1", "stop=DONE"],
    )
    flags.check()
    cache = CacheOptions(enabled=False, directory=Path.home() / "kv", budget_bytes=2 * 10**9)
    quantized = KVQuantization(4, 32)
    assert flags.engine_options() == EngineOptions("m", "t", offline=True, cache=cache, kv_quantization=quantized)
    sampling = SamplingOptions(0.0, 0.9, 40, 0.1, 3, 7, ("END", "DONE"), {"repetition_penalty": 1.1})
    assert flags.request_options() == RequestOptions(sampling, ThinkingOptions(True, 0))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"json": True, "jsonl": True}, "--json and --jsonl"),
        ({"quiet": True, "verbose": 1}, "-q and -v"),
        ({"think": False, "think_budget": 3}, "--no-think and --think-budget"),
        ({"offline": True, "yes": True}, "--offline and --yes"),
        ({"turns": "a", "prompt": ["b"]}, "--turns and a prompt"),
        ({"turns": "a", "file": ["b"]}, "--turns and -f"),
        ({"schema": "{}", "tools": ["b"]}, "--schema and --tools"),
        ({"schema": "{}", "mcp": ["b"]}, "--schema and --mcp"),
        ({"temp": math.nan}, "--temp takes a number"),
        ({"top_p": math.inf}, "--top-p takes a number"),
    ],
)
def test_what_contradicts_itself(given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        ChatFlags(**given).check()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * 10**9),
        ("500 MB", 5 * 10**8),
        ("1.5GiB", 3 * 2**29),
        ("4096", 4096),
        ("10k", 10_000),
        ("1tb", 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "--cache-bytes") == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "2 gigabytes", "2GBB", "1e9", "٣GB", "0.1"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="--cache-bytes takes a size"):
        parse_size(text, "--cache-bytes")


@pytest.mark.parametrize(
    ("option", "cause"),
    [
        ("stop", "takes key=value"),
        ("stop=", "needs a text"),
        ("repetition_penalty=high", "takes a number"),
        ("repetition_penalty=nan", "takes a number"),
        ("repetition_penalty=-1", "0 or more"),
        ("repetition_context_size=1.5", "takes a whole number"),
        ("xtc_probability=2", "from 0 to 1"),
        ("repetition_penality=1", "did you mean `repetition_penalty`"),
        ("temp=1", "has a flag of its own"),
        ("colour=red", "has no setting"),
    ],
)
def test_settings_that_are_none(option: str, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_settings([option])
    assert cause in caught.value.message
    assert caught.value.hint


def test_settings_are_read() -> None:
    settings = read_settings(["repetition-penalty=1.2", "xtc_probability=0.5", "min_tokens_to_keep=2", "stop=a=b"])
    assert settings.stop == ("a=b",)
    assert settings.extra == {"repetition_penalty": 1.2, "xtc_probability": 0.5, "min_tokens_to_keep": 2}
    assert read_settings(["xtc_threshold=0.1", "xtc_threshold=0.2"]).extra == {"xtc_threshold": 0.2}


def test_every_setting_is_an_argument_of_mlx_lm() -> None:
    from mlx_lm.sample_utils import make_logits_processors, make_sampler

    known = {*inspect.signature(make_sampler).parameters, *inspect.signature(make_logits_processors).parameters}
    assert set(NUMBERS) <= known
    assert set(NAMES) == {STOP, *NUMBERS}
