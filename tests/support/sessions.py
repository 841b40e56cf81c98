"""Saved chats, held as a program holds them."""

from __future__ import annotations

from pathlib import Path

from mlxchat.transcripts.session_appender import SessionAppender


def opened(path: Path) -> SessionAppender:
    """A session's file, locked."""
    appender = SessionAppender(path, exists=True)
    appender.open()
    return appender
