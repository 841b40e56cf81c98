"""One renderer per family for the whole run: building a tokenizer is cheap, loading it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.tiny_tokenizer import Family, load

Loader = Callable[[Family], Any]


@pytest.fixture(scope="session")
def tokenizer_of(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    known: dict[str, Any] = {}

    def get(family: Family) -> Any:
        if family not in known:
            known[family] = load(tmp_path_factory.mktemp("tokenizers") / family, family)
        return known[family]

    return get
