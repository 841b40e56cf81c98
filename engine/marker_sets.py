"""The strings that structure one model's replies, from its vocabulary and its template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

HARMONY_START = "<|start|>assistant"
HARMONY_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_HARMONY_STRINGS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", *HARMONY_ENDS)


@dataclass(frozen=True)
class Markers:
    """The strings one model uses.

    reasoning   pairs of opening and closing marker
    tool        the pair around tool calls; an empty closing marker means: up to the end
    dropped     strings that only give structure and are never shown
    harmony     gpt-oss channels: every part of a reply has a header that says what it is
    """

    reasoning: tuple[tuple[str, str], ...] = ()
    tool: tuple[str, str] | None = None
    dropped: tuple[str, ...] = ()
    harmony: bool = False

    @property
    def strings(self) -> tuple[str, ...]:
        """Every marker. Content that holds one of them is content, never a marker."""
        found = [marker for pair in self.reasoning for marker in pair]
        found += [marker for marker in self.tool or () if marker]
        found += [*self.dropped, *(_HARMONY_STRINGS if self.harmony else ())]
        return tuple(dict.fromkeys(found))

    @property
    def has_reasoning(self) -> bool:
        """Whether reasoning can be told from the answer."""
        return self.harmony or bool(self.reasoning)

    @property
    def has_tools(self) -> bool:
        """Whether a call can be told from the answer."""
        return self.harmony or self.tool is not None

    @property
    def close(self) -> str:
        """What ends the reasoning; empty if there is none."""
        return "<|end|>" if self.harmony else self.reasoning[0][1] if self.reasoning else ""

    @property
    def close_text(self) -> str:
        """What to feed to end the reasoning from outside (a spent budget); empty if there is none."""
        if self.harmony:
            return f"<|end|>{HARMONY_START}<|channel|>final<|message|>"
        if not self.reasoning:
            return ""
        close = self.reasoning[0][1]
        # Gemma's answer begins right behind the marker
        return f"\n{close}" if close == "<channel|>" else f"\n{close}\n\n"


def markers_for(tokenizer: TokenizerWrapper, template_source: str | None) -> Markers:
    """The markers of a model, from its vocabulary and the template in use (None: the tokenizer's own)."""
    if template_source is None:
        own = tokenizer.chat_template
        template_source = own if isinstance(own, str) else ""
    vocab = tokenizer.get_vocab()
    if "<|channel|>" in vocab and "<|message|>" in vocab and "<|channel|>" in template_source:
        return Markers(harmony=True)
    return Markers(
        reasoning=_reasoning_pairs(tokenizer, template_source),
        tool=_tool_pair(tokenizer, template_source),
        dropped=tuple(tokenizer.structural_markers),
    )


def _reasoning_pairs(tokenizer: TokenizerWrapper, source: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    if tokenizer.has_thinking:
        pairs.append((tokenizer.think_start, tokenizer.think_end))
    # a model without such tokens can still be led into reasoning by its template
    if ("<think>", "</think>") not in pairs and "</think>" in source:
        pairs.insert(0, ("<think>", "</think>"))
    return tuple(pairs)


def _tool_pair(tokenizer: TokenizerWrapper, source: str) -> tuple[str, str] | None:
    if tokenizer.has_tool_calling and (not source or tokenizer.tool_call_start in source):
        return tokenizer.tool_call_start, tokenizer.tool_call_end
    if "<tool_call>" in source and "</tool_call>" in source:
        return "<tool_call>", "</tool_call>"
    return (tokenizer.tool_call_start, tokenizer.tool_call_end) if tokenizer.has_tool_calling else None
