"""`replay --json` and `--jsonl`: the objects of docs/json.md, on stdout and nowhere else."""

from __future__ import annotations

from importlib import metadata
from platform import python_version
from typing import Any

from .. import __version__
from ..errors import MlxchatError
from ..transcripts.rows import Result, Row
from .json_output import error_object, write_json
from .replay_output import Opening, ReplayOutput, missing_object, plan_turn, replay_object, transcripts_object
from .streams import Streams

REPLAY, EVENT = "mlxchat.replay/1", "mlxchat.replay-event/1"
_PACKAGES = ("mlx", "mlx-lm", "mlx-vlm", "transformers")


class ReplayJson(ReplayOutput):
    """One object at the end, whatever happens."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._rows: list[Row] = []
        self._ended = False
        self._opening: Opening | None = None

    def begin(self, opening: Opening) -> None:
        """Keep it."""
        self._opening = opening

    def row(self, row: Row) -> None:
        """Keep it, in case the run fails."""
        self._rows.append(row)

    def end(self, result: Result, exit_code: int) -> None:
        """Print the run."""
        assert self._opening is not None
        self._ended = True
        write_json(self._streams, replay_object(self._opening, result, versions()))

    def failed(self, error: MlxchatError) -> None:
        """Print the failure, with the requests before it."""
        if self._ended:
            return
        turns = [row.to_json() for row in self._rows]
        write_json(self._streams, {"schema": REPLAY, "error": error_object(error), "text": "", "turns": turns})


class ReplayJsonl(ReplayOutput):
    """One object per request as it ends, each with the schema and its number, `done` always last."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._seq = 0
        self._planned = False
        self._ended = False

    def begin(self, opening: Opening) -> None:
        """Print `session`."""
        subject, coming = opening.subject, opening.coming
        self._planned = opening.planned
        self._print(
            "session",
            transcript=subject.transcript.path,
            format=subject.transcript.format,
            model=subject.model,
            adapter=subject.adapter,
            context_limit=subject.context,
            missing=missing_object(opening.share),
            skipped_lines=len(subject.transcript.skipped),
            requests=coming.requests,
            fit=coming.fit,
            prefill_tokens=coming.prefill_tokens,
            seconds=coming.seconds,
            transcripts=transcripts_object(opening),
            parallel=opening.parallel,
        )

    def row(self, row: Row) -> None:
        """Print `turn`."""
        self._print("turn", **(plan_turn(row) if self._planned else row.to_json()))

    def end(self, result: Result, exit_code: int) -> None:
        """Print `done`."""
        self._ended = True
        self._print(
            "done",
            exit_code=exit_code,
            summary=None if self._planned else result.summary(),
            baseline=result.baseline(),
            versions=versions(),
        )

    def failed(self, error: MlxchatError) -> None:
        """Print `error` and `done`."""
        if self._ended:
            return
        self._print("error", error=error_object(error), text="")
        self._print("done", exit_code=error.exit_code, summary=None, baseline=None, versions=versions())

    def _print(self, event: str, /, **fields: Any) -> None:
        write_json(self._streams, {"schema": EVENT, "seq": self._seq, "type": event, **fields})
        self._seq += 1


def versions() -> dict[str, str]:
    """What ran, by package."""
    found = {"mlxchat": __version__, "python": python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
