"""One renderer per family for the whole run: building a tokenizer is cheap, loading it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


@pytest.fixture
def same_words(request: pytest.FixtureRequest) -> None:
    """The words of a test depend on its name alone, not on which tests ran before it."""
    from support.rewind_talk import begin

    begin(request.node.name)


@pytest.fixture(scope="module")
def rigs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Cached and uncached engines on tiny text models, one pair for each kind and template of a module."""
    from support.rewind_rig import Rigs

    with Rigs(tmp_path_factory) as made:
        yield made
