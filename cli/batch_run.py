"""What `batch` does: read the requests, see which are answered already, run the others, keep each answer at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, BinaryIO

from ..engine.file_errors import unreadable
from ..errors import DataError, InputError, Interrupted
from ..transcripts.batch_lines import BatchLine, scan
from .batch_flags import BatchFlags
from .configuration import Configuration
from .engine_access import running_engine
from .failures import Reported, as_mlxchat_error
from .input_sources import Stdin
from .interrupts import stopping
from .model_choice import ensure_model
from .streams import Streams, json_alone

if TYPE_CHECKING:
    from ..transcripts.answer_file import AnswerFile
    from ..transcripts.batch_tally import Tally

PART_FAILED = 3


def run_batch(flags: BatchFlags) -> int:
    """Run the command; the exit code. Raises Reported once the output has said what it had to."""
    from ..transcripts.batch_tally import Tally
    from .batch_output import BatchOutput

    configuration = Configuration.read()
    flags = configuration.applied_to_runs(flags)
    streams, tally = Streams("auto", flags.verbosity), Tally()
    configuration.tell(streams)
    output = BatchOutput(flags, streams)
    try:
        flags.check()
        with json_alone(flags.json):
            code = _run(flags, streams, tally)
        output.end(tally)
        return code
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as failure:
        error = as_mlxchat_error(failure)
        output.failed(error, tally)
        raise Reported(error) from failure


def _run(flags: BatchFlags, streams: Streams, tally: Tally) -> int:
    from ..transcripts.answer_file import AnswerFile

    with _opened(flags) as requests:
        lines = list(scan(requests))
        if not lines:
            raise DataError(f"{flags.requests} holds no request", "it has one in JSON on each line")
        with closing(AnswerFile(flags.out_path)) as answers:
            if flags.retry_errors:  # nothing is taken out for a model that isn't there
                _ensure_model(flags, streams)
                tally.retried = answers.drop_failed(lines)
            pending = tally.pending(lines, answers.standing)
            if pending:
                if not flags.retry_errors:
                    _ensure_model(flags, streams)
                stopped = _answer(flags, streams, tally, requests, pending, answers)
                if stopped:
                    return Interrupted.exit_code
    return PART_FAILED if tally.any_failed else 0


def _ensure_model(flags: BatchFlags, streams: Streams) -> None:
    """Raises ModelError if the model isn't there and may not be fetched."""
    ensure_model(flags.model_name, offline=flags.offline, yes=flags.yes, streams=streams, stdin=Stdin())


def _answer(
    flags: BatchFlags, streams: Streams, tally: Tally, requests: BinaryIO, pending: list[BatchLine], answers: AnswerFile
) -> bool:
    """Run what is pending; whether Ctrl-C ended it early."""
    with running_engine(flags.engine_options(), streams) as engine:
        from ..transcripts.batch import Batch
        from .batch_progress import BatchProgress
        from .pictures import with_pictures

        tally.model, tally.adapter = engine.info.model, engine.info.adapter
        progress = BatchProgress(streams, len(pending))
        batch = Batch(
            engine,
            requests,
            flags.parallel,
            flags.defaults(),
            stage=lambda message: with_pictures(message, flags.offline),
            on_notice=lambda line, text: progress.note(f"{line.custom_id}: {text}"),
        )
        began = time.perf_counter()
        with progress, stopping(batch), closing(batch.run(pending)) as outcomes:
            for outcome in outcomes:
                answers.append(outcome.value)
                tally.wall_s = time.perf_counter() - began
                tally.add(outcome)
                progress.show(tally)
        tally.wall_s = time.perf_counter() - began
        return batch.stopped


@contextmanager
def _opened(flags: BatchFlags) -> Iterator[BinaryIO]:
    """The file of requests. Raises InputError."""
    try:
        file = flags.requests_path.open("rb")
    except OSError as error:
        raise unreadable(flags.requests, error) from error
    with file:
        if not file.seekable():
            raise InputError(f"{flags.requests} is no file", "write the requests into one first")
        yield file
