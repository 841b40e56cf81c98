"""What the model said at the end of each call, in this process."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlxchat.engine.runner import ModelRunner


class Logits:
    """The last logits of every call, by request and the position where it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: dict[tuple[int, int], np.ndarray] = {}
        plain = ModelRunner.forward

        def forward(runner: Any, request: int, sequence: int, live: Any, start: int, ids: mx.array) -> mx.array:
            logits = plain(runner, request, sequence, live, start, ids)
            last = logits[0, -1]
            mx.eval(last)
            self.seen[request, start + ids.size] = np.array(last.astype(mx.float32))
            return logits

        monkeypatch.setattr(ModelRunner, "forward", forward)
