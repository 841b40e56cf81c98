"""Which request of a replay goes next, what transcripts become together, and what each conversation did when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from mlxchat.cli.replay_table import Table
from mlxchat.cli.replay_timeline import timeline
from mlxchat.engine.messages import assistant, user
from mlxchat.errors import InputError
from mlxchat.transcripts.jobs import Supplied, jobs_of
from mlxchat.transcripts.lanes import Lanes
from mlxchat.transcripts.model import Conversation, Request, Transcript
from mlxchat.transcripts.overlap import phases
from mlxchat.transcripts.planned import Planned
from mlxchat.transcripts.report import page
from mlxchat.transcripts.together import read_all, together
from support.replays import result, row, transcript

pytestmark = pytest.mark.plain


def planned(*lanes: str, delay_ms: int = 0, **more: Any) -> list[Planned]:
    """One request of each of these lanes, in this order."""
    return [row(n, lane, delay_ms=delay_ms, **more).planned for n, lane in enumerate(lanes, 1)]


def numbers(taken: Sequence[Planned | None]) -> list[int | None]:
    return [one.job.number if one is not None else None for one in taken]


def test_one_of_each_lane_and_the_first_ones_first() -> None:
    made = planned("a", "b", "a", "c", "b")
    lanes = Lanes(made)
    assert lanes.count == 3
    assert numbers([lanes.take(0.0) for _ in range(4)]) == [1, 2, 4, None]
    lanes.ended(made[1], 1.0)
    assert numbers([lanes.take(1.0), lanes.take(1.0)]) == [5, None]
    lanes.ended(made[0], 2.0)
    assert not lanes.done
    assert numbers([lanes.take(2.0)]) == [3]
    assert lanes.done
    assert lanes.ready_at("a") == 2.0


def test_one_at_a_time_is_the_transcripts_own_order() -> None:
    made = planned("a", "b", "a", "c", "b")
    lanes, order = Lanes(made), []
    while (taken := lanes.take(0.0)) is not None:
        order.append(taken.job.number)
        lanes.ended(taken, 0.0)
    assert order == [1, 2, 3, 4, 5]


def test_a_lane_rests_for_as_long_as_its_tools_took() -> None:
    made = planned("a", "a", "b", "b", delay_ms=500)
    lanes = Lanes(made, real_time=True)
    first = lanes.take(0.0)
    assert first is not None
    lanes.ended(first, 1.0)
    assert lanes.pause(1.0) == 0.0, "the other lane has not begun"
    assert numbers([lanes.take(1.0), lanes.take(1.4)]) == [3, None]
    assert lanes.pause(1.4) == pytest.approx(0.1)
    assert numbers([lanes.take(1.5)]) == [2]
    assert lanes.pause(2.0) is None
    hurried = Lanes(made)
    hurried.ended(made[0], 1.0)
    assert hurried.ready_at("a") == 1.0
    unrun = Lanes(made, real_time=True)
    unrun.ended(replace(made[0], outcome="skipped_too_long"), 1.0)
    assert unrun.ready_at("a") == 1.0


def test_what_fails_takes_its_own_lane_along() -> None:
    made = planned("a", "b", "a", "a", "b")
    lanes = Lanes(made)
    first = lanes.take(0.0)
    assert first is not None
    assert numbers(lanes.give_up(first)) == [3, 4]
    assert numbers([lanes.take(0.0)]) == [2]


# -- several transcripts ---------------------------------------------------------------------------------------------


def talk(name: str, *conversations: Conversation) -> Transcript:
    return Transcript("openai", name, conversations)


def conversation(name: str, line: int = 1, **more: Any) -> Conversation:
    return Conversation(name, (Request((user("Well?"),), assistant("Yes."), line),), **more)


def test_conversations_of_several_transcripts_keep_apart() -> None:
    first = talk("x/a.jsonl", conversation("main"), conversation("sub", 2, parent="main"))
    second = replace(talk("x/b.jsonl", conversation("main"), conversation("other", 2)), format="pi")
    whole = together([first, second])
    assert [one.id for one in whole.conversations] == ["main (1)", "sub", "main (2)", "other"]
    assert whole.conversations[1].parent == "main (1)"
    assert whole.format == "openai+pi"
    jobs = jobs_of(whole, Supplied())
    assert [job.number for job in jobs] == [1, 2, 3, 4]
    assert [job.lane for job in jobs] == ["main (1)", "main (1)", "main (2)", "other"]
    assert [job.transcript for job in jobs] == ["x/a.jsonl", "x/a.jsonl", "x/b.jsonl", "x/b.jsonl"]
    assert together([first]) is first
    assert len({one.id for one in together([first, first]).conversations}) == 4


def test_parents_in_a_circle_and_parents_that_are_not_there() -> None:
    made = talk(
        "a",
        conversation("a", parent="b"),
        conversation("b", 2, parent="a"),
        conversation("c", 3, parent="gone"),
        conversation("d", 4, parent="d"),
    )
    lanes = {job.conversation: job.lane for job in jobs_of(made, Supplied())}
    assert (lanes["c"], lanes["d"]) == ("c", "d")
    assert set(lanes.values()) <= {"a", "b", "c", "d"}


def test_a_file_that_can_not_be_read_leaves_the_others() -> None:
    def read(name: str) -> Transcript:
        if name.startswith("bad"):
            raise InputError(f"can't read {name}", "check the name")
        return talk(name, conversation(name))

    whole, unread = read_all(["bad1", "good", "bad2"], read)
    assert [one.id for one in whole.conversations] == ["good"]
    assert [one.path for one in unread] == ["bad1", "bad2"]
    with pytest.raises(InputError, match="bad1"):
        read_all(["bad1", "bad2"], read)


# -- what it looked like ---------------------------------------------------------------------------------------------


def overlapping() -> list[Any]:
    """a works from 0 to 4, its tools take 2 s, b waits for 1 s and works from 1 to 6."""
    return [
        row(1, "a", started_s=0.0, admitted_s=0.0, ended_s=4.0, ttft_ms=1000.0),
        row(2, "b", started_s=0.0, admitted_s=1.0, ended_s=6.0, ttft_ms=3000.0),
        row(3, "a", ready_s=6.0, started_s=6.0, admitted_s=6.0, ended_s=10.0, ttft_ms=2000.0),
    ]


def test_the_phases_of_each_conversation() -> None:
    found = [(one.conversation, one.kind, one.start_s, one.end_s) for one in phases(overlapping())]
    assert found == [
        ("a", "prefill", 0.0, 1.0),
        ("a", "answer", 1.0, 4.0),
        ("b", "waiting", 0.0, 1.0),
        ("b", "prefill", 1.0, 3.0),
        ("b", "answer", 3.0, 6.0),
        ("a", "tools", 4.0, 6.0),
        ("a", "prefill", 6.0, 8.0),
        ("a", "answer", 8.0, 10.0),
    ]


def test_the_timeline_has_a_cell_for_each_slice() -> None:
    made = replace(result(overlapping()), wall_s=10.0, parallel=2)
    width = 28 + 10
    lines = ["".join(span.text for span in line) for line in timeline(made, ["a", "b"], width)]
    assert [line[28:] for line in lines[2:4]] == ["▓███--▓▓██", "·▓▓███    "]
    assert all(len(line) <= width for line in lines[:4])
    assert lines[2].startswith("    1  a ")
    assert all(word in lines[-1] for word in ("waiting", "prefill", "answer", "tools"))
    assert list(timeline(replace(made, wall_s=0.0), ["a"], width)) == []


def test_the_table_numbers_conversations_instead_of_heading_them() -> None:
    table = Table(100, side_by_side=["a", "b"])
    lines = ["".join(span.text for span in line) for one in overlapping() for line in table.rows(one)]
    assert len(lines) == 3
    assert [line.split()[:2] for line in lines] == [["1", "1"], ["2", "2"], ["3", "1"]]
    assert "conv" in "".join(span.text for span in table.head())


def test_sums_of_a_run_side_by_side() -> None:
    made = replace(result(overlapping()), wall_s=10.0, parallel=2)
    assert made.at_once == pytest.approx((4 + 5 + 4) / 10)
    assert made.tokens_per_s == pytest.approx(3 * (100 + 40) / 10)
    failing = replace(made, rows=(*made.rows, row(4, "b", outcome="failed")))
    assert (failing.failed, failing.totals.turns) == (1, 3)


def test_the_page_shows_the_overlap() -> None:
    made = replace(result(overlapping()), wall_s=10.0, parallel=2)
    text = page(transcript(), "m", made, with_text=False)
    assert "conversations side by side" in text
    assert "at once" in text
    assert "rect class='d'" in text
    alone = page(transcript(), "m", replace(made, parallel=1), with_text=False)
    assert "conversations side by side" not in alone
