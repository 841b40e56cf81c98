"""The filter of everything that is shown, where the terminal's modules look for it."""

from ..engine.sanitize import ESC, Sanitizer, sanitize

__all__ = ["ESC", "Sanitizer", "sanitize"]
