"""OpenAI chat: a request, a conversation or a message per line; Hugging Face rows; Anthropic rows logged likewise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...engine.messages import Message, system
from ..model import Conversation, Entry, Request, requests_of
from ..trees import MessageTree
from .base import Format, Head, Object, Parsed, Source
from .branches import BranchRows
from .chat_messages import ChatReader, entry_of, is_chat_message
from .content import words_of
from .fields import array, from_json, label, obj, objects, text, time_of, tools_of, usage_of, whole
from .request_log import LogRow, RequestLog, extends

_LISTS = ("messages", "trajectory", "conversations", "conversation", "prompt")
_BODIES = ("body", "request", "kwargs")
_NAMES = ("conversation_id", "session_id", "thread_id", "trace_id", "task_id", "id", "custom_id")


@dataclass
class _Row:
    """A row whose messages are read. `answer`: what a field beside the messages says came back."""

    value: Object
    line: int
    entries: list[Entry]
    answer: Entry | None = None
    tools: tuple[Object, ...] = ()
    messages: tuple[Message, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.messages = tuple(entry.message for entry in self.entries)


def _recognise(head: Head) -> bool:
    values = [value for value in head.values if "history" not in value and "hash_ids" not in value]
    return any(_message_list(_body(value)) is not None for value in values) or (
        sum(is_chat_message(value) for value in head.values) * 2 > len(head.values)
    )


def _body(value: Object) -> Object:
    """The object that holds the messages: the row, or the request inside it."""
    if _message_list(value) is not None:
        return value
    inner = next((obj(from_json(value.get(name))) for name in _BODIES if value.get(name)), {})
    return inner if _message_list(inner) is not None else value


def _message_list(value: Object) -> list[Object] | None:
    for name in _LISTS:
        found = from_json(value.get(name)) if isinstance(value.get(name), str) else value.get(name)
        items = array(found)
        if items and is_chat_message(items[0]):
            return objects(items)
    return None


def _parse(source: Source) -> Parsed:
    known = ChatReader()
    rows: list[_Row] = []
    loose: list[Entry] = []
    for record in source.records:
        body = _body(record.value)
        listed = _message_list(body)
        if listed is not None:
            rows.append(_read_row(source, known, record.value, body, listed, record.line))
        elif is_chat_message(record.value):
            loose += _entries(source, known, [record.value], record.line)
        else:
            source.skip(record.line, "no messages")
    found = _from_rows(source, rows)
    if loose:
        found = (*found, Conversation(source.name, _with_open_end(loose, (), loose[-1].line), entries=tuple(loose)))
    return Parsed(found)


def _entries(source: Source, known: ChatReader, listed: list[Object], line: int) -> list[Entry]:
    out = []
    for raw in listed:
        found = known.messages(raw)
        if not found:
            source.skip(line, f"a message with the role {str(raw.get('role'))[:40]!r}")
        out += [entry_of(message, raw, line) for message in found]
    return out


def _read_row(source: Source, known: ChatReader, value: Object, body: Object, listed: list[Object], line: int) -> _Row:
    entries = _entries(source, known, listed, line)
    instructions = words_of(body.get("system"))
    if instructions and "mlxchat" not in value:
        entries.insert(0, Entry(system(instructions), line))
    answers = _entries(source, known, _answer_of(value, body), line)
    tools = next((body[name] for name in ("tools", "functions") if body.get(name)), None)
    return _Row(value, line, entries, answers[0] if answers else None, tools_of(tools))


def _answer_of(value: Object, body: Object) -> list[Object]:
    """The answer that stands beside the messages, as a list of one chat message; empty if there is none."""
    for held in (value, body):
        for name in ("response", "completion", "output", "choices", "answer"):
            found = _one_answer(from_json(held[name]) if isinstance(held.get(name), str) else held.get(name))
            if found is None and isinstance(held.get(name), str) and name != "output":
                found = {"role": "assistant", "content": held[name]}
            if found is not None:
                return [found]
    return []


def _one_answer(found: Any) -> Object | None:
    """A chat message out of a message, a list of them or of choices, or a whole response (or its body)."""
    if isinstance(found, list):
        found = found[0] if found else None
    value = obj(found)
    for name in ("body", "message", "choices"):
        if name in value and not is_chat_message(value):
            inner = _one_answer(value[name])
            return None if inner is None else {**{k: value[k] for k in ("usage", "model") if k in value}, **inner}
    return value if is_chat_message(value) else None


def _from_rows(source: Source, rows: list[_Row]) -> tuple[Conversation, ...]:
    branches = BranchRows()
    plain = [row for row in rows if not branches.take(row.value, row.entries, row.tools, row.line)]
    if _is_log(plain):
        log = RequestLog(source.name)
        for row in plain:
            log.add(_log_row(row))
        return (*branches.conversations(), *log.conversations())
    return (*branches.conversations(), *(_conversation(source, row, at, len(plain)) for at, row in enumerate(plain, 1)))


def _is_log(rows: list[_Row]) -> bool:
    """Whether rows are requests, not conversations: they carry their answers, or one goes on with another's prompt."""
    if any(row.answer is not None for row in rows):
        return True
    tree = MessageTree()
    last: dict[bytes, tuple[Message, ...]] = {}
    for row in rows:
        if not row.messages:
            continue
        opening = tree.key(row.messages[0])
        if opening in last and extends(row.messages, last[opening], tree):
            return True
        last[opening] = row.messages
    return False


def _log_row(row: _Row) -> LogRow:
    answer = row.answer
    entries = row.entries
    if answer is None and entries and entries[-1].message.role == "assistant":
        answer, entries = entries[-1], entries[:-1]
    body = _body(row.value)
    return LogRow(
        messages=tuple(entry.message for entry in entries),
        line=row.line,
        conversation=_name_of(row.value, _NAMES[:4]),
        answer=answer.message if answer else None,
        tools=row.tools,
        usage=(answer.usage if answer else None) or usage_of(row.value.get("usage")),
        model=(answer.model if answer else None) or text(body.get("model")),
        time=time_of(row.value.get("timestamp")) or time_of(row.value.get("created")),
        max_tokens=whole(body.get("max_completion_tokens")) or whole(body.get("max_tokens")),
        hidden=bool(answer and answer.hidden_reasoning),
    )


def _name_of(value: Object, names: tuple[str, ...]) -> str | None:
    return next((found for name in names if (found := label(value.get(name)))), None)


def _conversation(source: Source, row: _Row, at: int, count: int) -> Conversation:
    name = _name_of(row.value, _NAMES) or (source.name if count == 1 else f"{source.name}-{at}")
    requests = _with_open_end(row.entries, row.tools, row.line)
    return Conversation(name, requests, title=text(row.value.get("title")), entries=tuple(row.entries))


def _with_open_end(entries: list[Entry], tools: tuple[Object, ...], line: int) -> tuple[Request, ...]:
    """The requests of a list of messages; messages after the last answer are one more, without an answer."""
    requests = requests_of(tuple(entries), tools)
    if entries and entries[-1].message.role in ("user", "tool"):
        return (*requests, Request(tuple(entry.message for entry in entries), None, line, tools))
    return requests


FORMAT = Format("openai", "OpenAI chat messages", _recognise, _parse)
