"""Which runs of characters are one emoji: a base, what chooses its look or skin, and others that are joined to it."""

from __future__ import annotations

import regex

JOINERS = frozenset("\ufe0e\ufe0f\u200d")
"""What shows nothing by itself: the text look, the emoji look, the joiner."""

_BASE = r"(?=\p{Emoji})[^\p{ASCII}\p{Emoji_Modifier}\p{Regional_Indicator}]"
_ONE = f"{_BASE}[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]?"
SEQUENCE = regex.compile(f"{_ONE}(?:\u200d{_ONE})*|[0-9#*]\ufe0f\u20e3")
"""One emoji. Each joiner in it stands where it has something to do; the last form is a key of a telephone."""
