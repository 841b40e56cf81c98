"""What an MCP server answers, as text for a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .excerpt import excerpt_of
from .tool import ToolResult

if TYPE_CHECKING:
    from mcp_types import CallToolResult


def result_of(answer: CallToolResult) -> ToolResult:
    """The answer's text, cut and cleaned. What is no text is named, not shown."""
    parts = [_text(block) for block in answer.content]
    if not parts and answer.structured_content is not None:
        parts = [json.dumps(answer.structured_content, ensure_ascii=False)]
    return ToolResult("failed" if answer.is_error else "ran", excerpt_of("\n".join(parts)))


def _text(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource":
        resource = block.resource
        text = getattr(resource, "text", None)
        return str(text) if text is not None else f"[{resource.uri}: no text, left out]"
    if block.type == "resource_link":
        return f"[see {block.uri}]"
    return f"[{block.type}, {block.mime_type}, {len(block.data):,} characters of base64: left out]"
