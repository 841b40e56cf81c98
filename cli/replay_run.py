"""What `replay` does: read the transcript, plan it, run it, and say what it cost."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.file_errors import unwritable
from ..engine.stats import RequestStats
from ..errors import DataError, Interrupted, OutputError
from ..transcripts.heading import Coming, Share
from ..transcripts.jobs import Job, jobs_of
from ..transcripts.model import Transcript
from ..transcripts.planned import Planned
from ..transcripts.reading import read
from ..transcripts.rows import Disk, Result, Row
from ..transcripts.together import Unread, read_all
from .configuration import Configuration
from .engine_access import running_engine
from .failures import Reported, as_mlxchat_error
from .input_sources import Stdin
from .interrupts import stopping
from .model_choice import ensure_model
from .replay_flags import ReplayFlags
from .replay_json import ReplayJson, ReplayJsonl
from .replay_output import Opening, ReplayOutput
from .replay_screen import ReplayScreen
from .replay_words import Subject
from .streams import Streams, json_alone

if TYPE_CHECKING:
    from ..transcripts.replay import Replay

BELOW_EFFICIENCY = PART_FAILED = 3


class ReportError(OutputError):
    """The report can't be written; stdout can."""


def run_replay(flags: ReplayFlags) -> int:
    """Run the command; the exit code. Raises Reported once the output has said what it had to."""
    configuration = Configuration.read()
    flags = configuration.applied_to_runs(flags)
    streams = Streams(flags.color or "auto", flags.verbosity)
    configuration.tell(streams)
    output = output_of(flags, streams)
    try:
        flags.check()
        with json_alone(flags.json or flags.jsonl):
            return _run(flags, streams, output)
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as failure:
        error = as_mlxchat_error(failure)
        if isinstance(error, ReportError) or not isinstance(error, OutputError):  # else stdout is past writing to
            output.failed(error)
        raise Reported(error) from failure


def output_of(flags: ReplayFlags, streams: Streams) -> ReplayOutput:
    """What --json or --jsonl asks for, else the table."""
    if flags.json:
        return ReplayJson(streams)
    return ReplayJsonl(streams) if flags.jsonl else ReplayScreen(streams, flags.color or "auto", flags.verbose > 0)


def _run(flags: ReplayFlags, streams: Streams, output: ReplayOutput) -> int:
    check_report(flags.report)
    transcript, unread = read_all(flags.transcripts, lambda name: _read(flags, name))
    if flags.plan:
        return _plan(flags, streams, output, transcript, unread)
    ensure_model(flags.model_name, offline=flags.offline, yes=flags.yes, streams=streams, stdin=Stdin())
    with running_engine(flags.engine_options(), streams) as engine:
        from ..transcripts.replay import Replay

        replay = Replay(engine, flags.settings(), output.notice if flags.parallel > 1 else lambda text: None)
        with stopping(replay):
            return _replay(flags, streams, output, replay, transcript, unread)


def _read(flags: ReplayFlags, name: str) -> Transcript:
    """One of the transcripts. Raises InputError, DataError, UsageError."""
    transcript = read(Path(name).expanduser(), flags.format)
    if not jobs_of(transcript, flags.supplied(), 1):
        raise DataError(f"{name} has no request to replay", "it holds no answer of a model")
    return transcript


def _jobs(flags: ReplayFlags, transcript: Transcript, sees: bool) -> Sequence[Job]:
    return jobs_of(transcript, flags.supplied(), flags.limit_turns, pictures=sees)


def _replay(
    flags: ReplayFlags,
    streams: Streams,
    output: ReplayOutput,
    replay: Replay,
    transcript: Transcript,
    unread: Sequence[Unread],
) -> int:
    from ..transcripts.replay import spread

    info, planned = replay.info, []
    jobs = _jobs(flags, transcript, info.vision)
    for one in replay.plan(jobs):
        planned.append(one)
        output.planning(len(planned), len(jobs))
    if replay.stopped:
        raise Interrupted("interrupted")
    check_any_runs(planned)
    fitting = [one.job.number for one in planned if one.outcome == "run"]
    compared = spread(fitting, flags.compare_sample) if flags.compares else frozenset[int]()
    coming = Coming.of(planned, flags.prefill_rate or replay.rate(), compared)
    words = flags.supplied_words()
    subject = Subject(transcript, jobs, info.model, info.template, replay.limit, words, info.vision, info.adapter)
    opening = Opening(
        subject, Share.of(planned, transcript.missing), coming, len(compared), parallel=flags.parallel, unread=unread
    )
    output.begin(opening)
    rows = []
    for row in replay.run(planned, compared):
        rows.append(row)
        output.row(row)
    result = Result(tuple(rows), replay.seconds(), replay.disk(), replay.memory(), flags.parallel)
    return _finish(flags, streams, output, opening, result, stopped=replay.stopped)


def _plan(
    flags: ReplayFlags, streams: Streams, output: ReplayOutput, transcript: Transcript, unread: Sequence[Unread]
) -> int:
    """--plan: a tokenizer and a template, no weights."""
    from ..engine.adapter import read_adapter
    from ..transcripts.weightless import Weightless

    adapter = None if flags.adapter is None else read_adapter(flags.adapter).path
    without = Weightless.load(flags.model_name, flags.template, flags.settings())
    jobs, planned = _jobs(flags, transcript, without.sees), []
    for job in jobs:
        planned.append(without.planner.plan(job))
        output.planning(len(planned), len(jobs))
    check_any_runs(planned)
    words = flags.supplied_words()
    subject = Subject(transcript, jobs, without.name, without.template, without.limit, words, without.sees, adapter)
    coming = Coming.of(planned, flags.prefill_rate)
    opening = Opening(subject, Share.of(planned, transcript.missing), coming, planned=True, unread=unread)
    output.begin(opening)
    rows = [_planned_row(one, flags.prefill_rate) for one in planned]
    for row in rows:
        output.row(row)
    return _finish(flags, streams, output, opening, Result(tuple(rows), 0.0, Disk(), 0), stopped=False)


def _planned_row(planned: Planned, rate: float | None) -> Row:
    """The plan's numbers where a run's would be."""
    runs = planned.outcome == "run"
    stats = RequestStats(
        turn=planned.job.turn,
        prompt_tokens=planned.prompt_tokens,
        common_prefix_tokens=planned.common_prefix_tokens,
        cached_tokens=planned.ideal_tokens,
        prefill_tokens=planned.new_tokens,
        completion_tokens=planned.answer_tokens,
        divergence=planned.divergence,
        ttft_ms=planned.ttft_ms(rate) if rate and runs else 0.0,
    )
    return Row(planned, planned.outcome, stats)


def _finish(
    flags: ReplayFlags, streams: Streams, output: ReplayOutput, opening: Opening, result: Result, *, stopped: bool
) -> int:
    """Say the end of it, write the report, and make the exit code."""
    efficiency = result.totals.efficiency
    code = 0
    if stopped:
        code = Interrupted.exit_code
    elif flags.min_efficiency is not None and efficiency is not None and efficiency < flags.min_efficiency:
        code = BELOW_EFFICIENCY
    elif result.failed or opening.unread:
        code = PART_FAILED
    output.end(result, code)
    if flags.report is not None:
        from ..transcripts.report import page

        subject = opening.subject
        write_report(flags.report, page(subject.transcript, subject.model_words, result, flags.with_text))
        streams.note(f"report: {flags.report}")
    for one in opening.unread:
        streams.note(f"{one.path} was left out: {one.error.message}")
    if result.failed:
        streams.note(f"{result.failed:,} requests failed, or came after one that had")
    if flags.min_efficiency is not None and efficiency is not None and efficiency < flags.min_efficiency:
        streams.note(f"efficiency {efficiency:.4f} is under {flags.min_efficiency} (--min-efficiency)")
    return code


def check_any_runs(planned: Sequence[Planned]) -> None:
    """Raise DataError with the first reason if not one request can run."""
    if not any(one.outcome == "run" for one in planned):
        first = planned[0]
        raise DataError(
            f"no request can run; request {first.job.number} (line {first.job.line}): {first.why}",
            "choose a model with a longer context, or another template with --template",
        )


def check_report(name: str | None) -> None:
    """Raise ReportError before a long run if its page could not be written."""
    if name is None:
        return
    path = Path(name).expanduser()
    code = errno.EISDIR if path.is_dir() else 0 if path.absolute().parent.is_dir() else errno.ENOENT
    if code:
        raise _unwritable(name, OSError(code, os.strerror(code)))


def write_report(name: str, text: str) -> None:
    """Write the page. Raises ReportError."""
    try:
        Path(name).expanduser().write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(name, error) from error


def _unwritable(name: str, error: OSError) -> OutputError:
    return unwritable(name, error, "name another file with --report", ReportError)
