"""What `chat` does: read the input, load the model, then one turn, several, or a conversation."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..engine.messages import FilePart, Message
from ..engine.options import RequestOptions
from ..engine.vision_kind import sees_no_pictures
from ..errors import OutputError, UsageError
from .attachments import Attachments
from .chat_flags import ChatFlags
from .configuration import Configuration
from .echo import unechoed
from .engine_access import new_chat, running_engine
from .failures import Reported, as_mlxchat_error
from .first_model import choose_first_model
from .input_sources import Stdin, check_stdin_users, prompt_text, read_files, read_turns, system_text, user_message
from .interrupts import unheard
from .json_output import output_for
from .model_choice import ensure_model
from .one_shot import run_one_shot
from .output import Output
from .people_output import people_output
from .pictures import StagedPicture, pictures_in, sees_pictures, stage_all, with_pictures
from .saved_chat import SavedChat, open_chat
from .streams import Streams, is_terminal, json_alone
from .tool_setup import RunTools, ToolFiles
from .turns import run_turns

if TYPE_CHECKING:
    from ..engine.chat import Chat


@dataclass(frozen=True)
class Work:
    """What to send. `messages` None: a conversation at the terminal, its first message bringing the rest."""

    messages: list[Message] | None
    files: list[FilePart] = field(default_factory=list)
    pictures: list[StagedPicture] = field(default_factory=list)


def run_chat(flags: ChatFlags) -> int:
    """Run the command; the exit code. Raises Reported once the output has said what it had to.

    UsageError and DataError for settings that can't be obeyed.
    """
    configuration = Configuration.read()
    flags = configuration.applied(flags)
    streams = Streams(flags.color or "auto", flags.verbosity)
    configuration.tell(streams)
    configuration.name_editor()
    output: Output
    if flags.machine_output:
        output = output_for(streams, jsonl=flags.jsonl, turns=flags.turns is not None)
    else:
        output = people_output(flags, streams, flags.verbosity > 0, blank_between=flags.turns is not None)
    try:
        with json_alone(flags.machine_output):
            code = _run(flags, streams, output)
        output.finished(code)
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as failure:
        error = as_mlxchat_error(failure)
        if not isinstance(error, OutputError):  # then stdout is past writing to
            with unheard():
                output.failed(error)
        raise Reported(error) from failure
    return code


def _run(flags: ChatFlags, streams: Streams, output: Output) -> int:
    flags.check()
    flags.engine_options(), flags.request_options()  # what is wrong with them is said before stdin is read
    tool_files = ToolFiles(flags)
    stdin = Stdin()
    system = system_text(flags.system)
    work = read_work(flags, stdin, streams)
    saved = open_chat(choose_first_model(flags, stdin, streams), system, streams)
    try:
        code = _chat(flags, saved, work, tool_files, stdin, streams, output)
    finally:
        saved.close()
    return saved.exit_code(code)


def _chat(
    typed: ChatFlags,
    saved: SavedChat,
    work: Work,
    tool_files: ToolFiles,
    stdin: Stdin,
    streams: Streams,
    output: Output,
) -> int:
    """Load the model and do the work; the exit code."""
    flags, request_options = saved.flags, saved.flags.request_options()
    ensure_model(flags.model_name, offline=flags.offline, yes=flags.yes, streams=streams, stdin=stdin)
    sees = sees_pictures(flags.model_name, flags.offline)
    if not sees and (work.pictures or pictures_in([*saved.history, *(work.messages or [])])):
        raise sees_no_pictures(flags.model_name)
    if work.messages is None:
        return _converse(typed, saved, work, tool_files, sees, streams)
    asks = stdin.is_terminal and is_terminal(streams.stderr) and not flags.machine_output
    with (
        closing(tool_files.open(streams, asks)) as tools,
        running_engine(flags.engine_options(), streams, timed=True) as engine,
    ):
        output.session(engine.info, saved.session_id)
        tools.settle(engine.info, streams.notice)
        chat = new_chat(engine, saved.system, saved.history, saved.recorder, saved.day, tools.schemas, tree=saved.tree)
        code = _answer(chat, work.messages, flags, request_options, output, tools)
        if flags.machine_output:
            output.cache(engine.cache_report())
        return code


def _answer(
    chat: Chat,
    messages: list[Message],
    flags: ChatFlags,
    request_options: RequestOptions,
    output: Output,
    tools: RunTools,
) -> int:
    if flags.turns is None:
        return run_one_shot(chat, messages[0], request_options, output, tools.loop)
    return run_turns(chat, messages, request_options, output, tools.loop)


def _converse(
    typed: ChatFlags, saved: SavedChat, work: Work, tool_files: ToolFiles, sees: bool, streams: Streams
) -> int:
    """The conversation at the terminal; the exit code. `typed` are the flags as they were given."""
    from .repl_run import run_repl

    attachments = Attachments(model=saved.flags.model_name, sees=sees, offline=saved.flags.offline)
    draft = "" if saved.unanswered is None else attachments.take_back(saved.unanswered, streams.note)
    attachments.files += work.files
    attachments.pictures += work.pictures
    with unechoed():
        return run_repl(typed, saved, attachments, streams, draft, tool_files)


def read_work(flags: ChatFlags, stdin: Stdin, streams: Streams) -> Work:
    """What the command line and stdin ask for. Raises UsageError, InputError, DataError, before any model is loaded."""
    words, files, images = flags.prompt or [], flags.file or [], flags.image or []
    check_stdin_users(words, files, flags.turns, flags.no_stdin, images)
    if flags.turns is not None:
        return Work([with_pictures(message, flags.offline) for message in read_turns(flags.turns, stdin)])
    taken = "-" in (*files, *images)
    if not words and not taken and stdin.is_terminal:
        _check_terminal(flags, streams)
        return Work(None, read_files(files, stdin), stage_all(images, flags.offline, stdin))
    prompt = prompt_text(words, stdin, taken, flags.no_stdin, streams.note)
    parts = read_files(files, stdin)
    if not (prompt or "").strip() and (words or not any(part.text.strip() for part in parts)):
        raise UsageError("the prompt is empty", 'give one: mlxchat "question", or pipe text in')
    pictures = stage_all(images, flags.offline, stdin)
    return Work([user_message(prompt, parts, [one.part for one in pictures])])


def _check_terminal(flags: ChatFlags, streams: Streams) -> None:
    if flags.json or flags.jsonl:
        raise UsageError("JSON output needs a prompt", 'for example mlxchat "question" --json')
    if not is_terminal(streams.stdout):
        raise UsageError("there is no prompt, and stdout is no terminal", 'give one: mlxchat "question"')
