"""Transcript formats in and out, saved sessions, replay."""
