"""The session of a chat: a new one, one that goes on, or none; and what the one that goes on restores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..engine.conversation_tree import ConversationTree
from ..engine.messages import Message
from ..errors import DataError, InputError, OutputError
from ..transcripts.model import Entry
from ..transcripts.session_appender import SessionAppender, SessionBusy, is_open
from ..transcripts.session_file import SavedSession, read_session
from ..transcripts.session_recorder import SessionRecorder
from ..transcripts.session_settings import SessionSettings
from ..transcripts.session_store import SessionStore
from .chat_flags import ChatFlags
from .chat_settings import restored, settings_of
from .input_sources import system_text
from .pictures import without_lost
from .streams import Streams

_TITLE_LENGTH = 40


@dataclass(frozen=True)
class SavedChat:
    """How the chat begins.

    flags        the command line, what it left open filled in from the session that goes on
    history      what was said before, without the system message
    recorder     None: nothing is saved
    unanswered   a message at the end of the session that got no answer, to be offered again
    day          ISO, the day that templates may name: the one on which the chat began; None for today
    tree         everything that was said before, on all branches
    """

    flags: ChatFlags
    system: str | None
    history: tuple[Message, ...] = ()
    recorder: SessionRecorder | None = None
    unanswered: Message | None = None
    day: str | None = None
    tree: ConversationTree = field(default_factory=ConversationTree)

    @property
    def session_id(self) -> str | None:
        """The id of the session that is written to, None if none is."""
        return None if self.recorder is None else self.recorder.session_id

    def close(self) -> None:
        """Let go of the session."""
        if self.recorder is not None:
            self.recorder.close()

    def exit_code(self, code: int) -> int:
        """`code`, unless all went well but for saving."""
        unsaved = self.recorder is not None and self.recorder.failure is not None
        return OutputError.exit_code if unsaved and code == 0 else code


def open_chat(flags: ChatFlags, system: str | None, streams: Streams) -> SavedChat:
    """Find, lock and read the session to go on with, or prepare a new one. Loads no model.

    -c passes over sessions that can't be read, with a line about each. Raises InputError if there is no such session,
    UsageError if its id's start is several's, DataError if it can't be read.
    """
    store = SessionStore()
    if not flags.resumes:
        return _new(flags, system, store, streams)
    path = _newest(store, streams) if flags.resume is None else store.find(flags.resume)
    appender = None if flags.fork or flags.no_save else _locked(path, streams)
    try:
        saved = read_session(path, unfinished=appender is not None or not is_open(path))
        return _resumed(flags, system, store, saved, appender, streams)
    except BaseException:
        if appender is not None:
            appender.close()
        raise


def _newest(store: SessionStore, streams: Streams) -> Path:
    """The session used last that can be read. If none can, the one used last: whoever reads it says why not."""
    newest = store.newest()
    passed: list[str] = []
    for path in store.paths():
        try:
            read_session(path)
        except DataError as error:
            passed.append(f"passed over, since it can't be read: {error.message}")
        except InputError as error:
            passed.append(f"passed over: {error.message}")
        else:
            for line in passed:
                streams.note(line)
            return path
    return newest


def _new(flags: ChatFlags, system: str | None, store: SessionStore, streams: Streams) -> SavedChat:
    if system is None:
        system = system_text(flags.defaults.get("system"))
    flags = flags.for_new_chat()
    if flags.no_save:
        return SavedChat(flags, system, tree=ConversationTree(settings_of(flags, system).model))
    recorder = SessionRecorder(store.folder, settings_of(flags, system), streams.notice)
    return SavedChat(flags, system, recorder=recorder, tree=ConversationTree(recorder.settings.model))


def _locked(path: Path, streams: Streams) -> SessionAppender | None:
    """The session's file, for this program alone; None if another has it, and this one goes on in a copy."""
    appender = SessionAppender(path, exists=True)
    try:
        appender.open()
    except SessionBusy as busy:
        streams.note(f"{busy.message}; going on in a copy")
        return None
    except OSError:
        pass  # told with the first message that can't be written; the answer comes all the same
    return appender


def _resumed(
    flags: ChatFlags,
    system: str | None,
    store: SessionStore,
    saved: SavedSession,
    appender: SessionAppender | None,
    streams: Streams,
) -> SavedChat:
    if saved.refused:
        names = ", ".join(saved.refused)
        streams.note(f"the session names what no session may set, and is not obeyed: {names}")
    flags = restored(flags, saved.settings, streams)
    system = saved.settings.system if system is None else system
    saved, lost = _as_it_is_here(saved, store)
    settings, conversation = settings_of(flags, system), saved.answered
    said = [entry for entry in conversation if entry.message.role != "system"]
    recorder: SessionRecorder | None = None
    if appender is not None:
        recorder = SessionRecorder.resume(appender, saved, settings, streams.notice)
    elif not flags.no_save:
        recorder = SessionRecorder(store.folder, settings, streams.notice, said, forked_from=saved.id)
    history = tuple(entry.message for entry in said)
    _tell(saved, history, settings, recorder, streams, flags.cache_persist)
    for line in lost:
        streams.note(line)
    ended = saved.conversation[len(conversation) :]
    goes_on = recorder is not None and recorder.session_id == saved.id
    tree = _tree_of(saved.entries if goes_on else conversation, settings.model)
    return SavedChat(flags, system, history, recorder, ended[-1].message if ended else None, saved.day, tree)


def _as_it_is_here(saved: SavedSession, store: SessionStore) -> tuple[SavedSession, list[str]]:
    """The session with its pictures where they are now, and one line about each that is gone."""
    located = [store.images.located(entry.message) for entry in saved.entries]
    messages, lost = without_lost(located)
    entries = (replace(entry, message=message) for entry, message in zip(saved.entries, messages, strict=True))
    return replace(saved, entries=tuple(entries)), lost


def _tree_of(entries: Sequence[Entry], model: str | None) -> ConversationTree:
    """All branches of `entries`, for a chat that `model` answers from now on."""
    tree = ConversationTree(model)
    numbers: dict[str | None, int] = {}
    for entry in entries:
        numbers[entry.id] = tree.add(entry.message, numbers.get(entry.parent_id), entry.model).number
    return tree


def _tell(
    saved: SavedSession,
    history: Sequence[Message],
    settings: SessionSettings,
    recorder: SessionRecorder | None,
    streams: Streams,
    persist: bool,
) -> None:
    """What goes on, and what reading it again will cost."""
    from ..engine.template_files import built_in_names

    title = saved.title if len(saved.title) <= _TITLE_LENGTH else f"{saved.title[:_TITLE_LENGTH]}…"
    cost = f"about {saved.tokens:,} tokens{' less those in the kept cache' if persist else ''} to prefill"
    parts = [f"{len(history)} message{'s' * (len(history) != 1)}", cost]
    if recorder is not None and recorder.session_id != saved.id:
        parts.append(f"in the copy {recorder.session_id}")
    if settings.model != saved.settings.model:
        parts.append(f"a branch, with {settings.model}")
    if settings.template is not None and settings.template not in built_in_names():
        parts.append(f"with the template {settings.template}")  # a chat from elsewhere may name any file
    streams.note(f"resuming {saved.id} “{title}”: {', '.join(parts)}")
