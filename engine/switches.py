"""The test switches: environment variables that a test sets and a user never needs. Read once, at engine start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Switches:
    """What the environment asks for.

    call_log     MLXCHAT_TEST_CALL_LOG=FILE: one JSON line per model call
    drop_live    MLXCHAT_TEST_DROP_LIVE=1: park and drop the live sequence after each request
    think_min    MLXCHAT_TEST_THINK_MIN=N: stop tokens and the closing marker are masked until N reasoning tokens
    script       MLXCHAT_TEST_SCRIPT=FILE: the sampled words come from this file (engine/scripted.py)
    gate         MLXCHAT_TEST_GATE=FOLDER: where a test holds the engine (engine/scripted.py)
    """

    call_log: Path | None = None
    drop_live: bool = False
    think_min: int = 0
    script: Path | None = None
    gate: Path | None = None

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Switches:
        """The switches set in `environment` (os.environ by default)."""
        env = os.environ if environment is None else environment

        def path(name: str) -> Path | None:
            value = env.get(name)
            return Path(value) if value else None

        return cls(
            call_log=path("MLXCHAT_TEST_CALL_LOG"),
            drop_live=env.get("MLXCHAT_TEST_DROP_LIVE", "") not in ("", "0"),
            think_min=int(env.get("MLXCHAT_TEST_THINK_MIN", "0") or 0),
            script=path("MLXCHAT_TEST_SCRIPT"),
            gate=path("MLXCHAT_TEST_GATE"),
        )
