"""Which output a run has that people read."""

from __future__ import annotations

from .chat_flags import ChatFlags
from .plain_output import PlainOutput
from .streams import Streams
from .typed_ahead import TypedAhead


def people_output(
    flags: ChatFlags, streams: Streams, show_stats: bool, blank_between: bool = False, keys: TypedAhead | None = None
) -> PlainOutput:
    """One that renders where stdout is a terminal that can, else plain text. Rich is imported only for the former."""
    stream, markdown = not flags.no_stream, not flags.no_markdown
    if not streams.renders:
        return PlainOutput(streams, stream, show_stats, blank_between)
    from .live_output import LiveOutput

    return LiveOutput(streams, stream, show_stats, blank_between, markdown=markdown, keys=keys)
