from __future__ import annotations

import errno
import os
import stat

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mlxchat.cache.files import FileSystem
from mlxchat.cache.scratch import Extent, ScratchFile
from support.kvstore import FaultyFiles, io_error

pytestmark = pytest.mark.exact

LIMIT = 1000


@pytest.fixture
def files():
    return FaultyFiles()


@pytest.fixture
def scratch(tmp_path, files):
    scratch = ScratchFile(tmp_path, files)
    yield scratch
    scratch.close()


def fill(scratch: ScratchFile, *lengths: int) -> list[Extent]:
    extents = [scratch.allocate(length, LIMIT) for length in lengths]
    assert None not in extents
    return extents


def read(scratch: ScratchFile, extent: Extent) -> bytes:
    out = bytearray(extent.length)
    scratch.read_into(extent.offset, memoryview(out))
    return bytes(out)


def test_the_file_has_no_name_and_is_for_its_owner_only(tmp_path, scratch, files):
    assert list(tmp_path.iterdir()) == []
    status = os.fstat(files.descriptor)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_nlink == 0
    assert not os.get_inheritable(files.descriptor)


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="no nameless files on this system")
@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT])
def test_the_same_where_files_can_not_be_born_nameless(tmp_path, monkeypatch, number):
    opened = os.open

    def without_tmpfile(path, flags, *rest, **named):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise io_error(number)
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", without_tmpfile)
    descriptor = FileSystem().open_unlinked(tmp_path)
    status = os.fstat(descriptor)
    os.close(descriptor)
    assert list(tmp_path.iterdir()) == []
    assert (stat.S_IMODE(status.st_mode), status.st_nlink) == (0o600, 0)


def test_the_same_where_the_system_knows_no_vectors(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "preadv", raising=False)
    monkeypatch.delattr(os, "pwritev", raising=False)
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    scratch = ScratchFile(tmp_path)
    _, extent = fill(scratch, 7, 9)
    scratch.write(extent, [b"abc", b"", b"defghi"])
    assert read(scratch, extent) == b"abcdefghi"
    assert list(tmp_path.iterdir()) == []
    scratch.check()
    scratch.close()


def test_extents_follow_one_another(scratch):
    assert fill(scratch, 10, 20, 30) == [(0, 10), (10, 20), (30, 30)]
    assert scratch.length == scratch.peak == 60
    scratch.check()


def test_the_tightest_hole_is_taken_and_its_rest_stays_free(scratch):
    a, _, c, _, e, _ = fill(scratch, 50, 1, 20, 1, 30, 1)
    for extent in (a, c, e):
        scratch.free(extent)
    assert scratch.allocate(19, LIMIT) == (c.offset, 19)
    assert scratch.free_extents() == [a, (c.offset + 19, 1), e]
    assert scratch.allocate(30, LIMIT) == e
    assert scratch.allocate(51, LIMIT) == (103, 51)
    scratch.check()


def test_free_neighbours_become_one(scratch):
    a, b, c, _ = fill(scratch, 10, 10, 10, 10)
    scratch.free(a)
    scratch.free(c)
    assert scratch.free_extents() == [a, c]
    scratch.free(b)
    assert scratch.free_extents() == [(0, 30)]
    scratch.check()


def test_free_space_at_the_end_is_given_back(scratch, files):
    a, b, c = fill(scratch, 10, 20, 30)
    scratch.free(b)
    assert scratch.length == 60
    scratch.free(c)
    assert scratch.length == os.fstat(files.descriptor).st_size == 10
    assert scratch.free_extents() == []
    scratch.free(a)
    assert (scratch.length, scratch.peak) == (0, 60)
    scratch.check()


def test_the_limit_is_on_the_files_length(scratch):
    assert scratch.allocate(LIMIT + 1, LIMIT) is None
    a, _ = fill(scratch, 400, 600)
    assert scratch.allocate(1, LIMIT) is None
    scratch.free(a)
    assert scratch.allocate(401, LIMIT) is None
    assert scratch.allocate(400, LIMIT) == a
    scratch.check()


def test_no_extent_of_no_bytes(scratch):
    with pytest.raises(ValueError, match="0 bytes"):
        scratch.allocate(0, LIMIT)


@pytest.mark.parametrize("most", [None, 1, 3])
def test_what_is_written_in_pieces_is_read_in_pieces(scratch, files, most):
    files.most_at_once = most
    a, b = fill(scratch, 10, 12)
    scratch.write(b, [b"hello", bytearray(b""), memoryview(b" world!")])
    scratch.write(a, [b"0123456789"])
    assert read(scratch, a) == b"0123456789"
    assert read(scratch, b) == b"hello world!"


def test_more_buffers_than_one_call_takes(scratch):
    (extent,) = fill(scratch, 900)
    data = [bytes([n % 251]) for n in range(900)]
    scratch.write(extent, data)
    assert read(scratch, extent) == b"".join(data)


def test_more_bytes_than_one_call_takes(scratch, monkeypatch):
    monkeypatch.setattr("mlxchat.cache.scratch._MOST_BYTES", 7)
    (extent,) = fill(scratch, 40)
    data = bytes(range(40))
    scratch.write(extent, [data[:5], data[5:33], data[33:]])
    assert read(scratch, extent) == data


def test_a_write_that_does_not_fill_its_extent_is_refused(scratch):
    (extent,) = fill(scratch, 10)
    for data in (b"123456789", b"12345678901"):
        with pytest.raises(ValueError, match="don't fill"):
            scratch.write(extent, [data])


def test_a_full_disk_is_an_error_also_half_way(scratch, files):
    (extent,) = fill(scratch, 10)
    for room in (0, 4):
        files.write_room = room
        with pytest.raises(OSError, match="No space"):
            scratch.write(extent, [b"0123456789"])


def test_a_disk_that_writes_nothing_is_an_error_not_a_loop(scratch, files, monkeypatch):
    (extent,) = fill(scratch, 10)
    monkeypatch.setattr(files, "pwritev", lambda *_: 0)
    with pytest.raises(OSError, match=r"Input/output"):
        scratch.write(extent, [b"0123456789"])


def test_a_file_that_ends_too_early_is_an_error(scratch, files):
    (extent,) = fill(scratch, 10)
    scratch.write(extent, [b"0123456789"])
    files.end_at = 6
    with pytest.raises(OSError, match="too early"):
        read(scratch, extent)


def test_a_file_that_can_not_grow_changes_nothing(scratch, files):
    fill(scratch, 10)
    files.truncate_error = io_error(errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        scratch.allocate(10, LIMIT)
    assert scratch.length == 10
    scratch.check()


def test_a_file_that_can_not_shrink_does_so_later(scratch, files):
    _, b, c = fill(scratch, 10, 20, 30)
    files.truncate_error = io_error()
    scratch.free(c)
    assert (scratch.length, scratch.free_extents()) == (60, [c])
    scratch.check()
    files.truncate_error = None
    scratch.free(b)
    assert (scratch.length, scratch.free_extents()) == (10, [])
    scratch.check()


def test_a_closed_file_is_an_error(scratch):
    (extent,) = fill(scratch, 1)
    scratch.close()
    scratch.close()
    for use in (
        lambda: scratch.write(extent, [b"1"]),
        lambda: read(scratch, extent),
        lambda: scratch.allocate(1, LIMIT),
    ):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()
    scratch.free(extent)


def test_check_sees_each_contradiction(tmp_path):
    def spoil(change) -> None:
        scratch = ScratchFile(tmp_path)
        a, _, _ = fill(scratch, 10, 10, 10)
        scratch.free(a)
        scratch.check()
        change(scratch)
        with pytest.raises(AssertionError, match="scratch"):
            scratch.check()
        scratch.close()

    spoil(lambda s: setattr(s, "length", 29))
    spoil(lambda s: setattr(s, "peak", 29))
    spoil(lambda s: s._insert(Extent(10, 5)))
    spoil(lambda s: s._insert(Extent(25, 50)))
    spoil(lambda s: s._free.clear())
    spoil(lambda s: s._insert(Extent(15, 0)))


class Machine(RuleBasedStateMachine):
    """Allocation against a plain list of what is held."""

    def __init__(self) -> None:
        super().__init__()
        self.files = FaultyFiles()
        self.scratch = ScratchFile(self.directory, self.files)
        self.held: list[Extent] = []

    @rule(length=st.integers(1, 120))
    def allocate(self, length: int) -> None:
        before = self.scratch.free_extents()
        fits = [extent for extent in before if extent.length >= length]
        extent = self.scratch.allocate(length, LIMIT)
        if extent is None:
            assert not fits
            assert self.scratch.length + length > LIMIT
            return
        if fits:
            assert extent.offset in {hole.offset for hole in fits if hole.length == min(f.length for f in fits)}
        self.held.append(extent)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        extent = data.draw(st.sampled_from(self.held))
        self.held.remove(extent)
        self.scratch.free(extent)

    @invariant()
    def extents_tile_the_file(self) -> None:
        self.scratch.check()
        end = 0
        for extent in sorted([*self.held, *self.scratch.free_extents()]):
            assert extent.offset == end
            end = extent.end
        assert end == self.scratch.length <= LIMIT
        assert max((extent.end for extent in self.held), default=0) == self.scratch.length

    def teardown(self) -> None:
        self.scratch.close()


def test_allocation_against_a_plain_list(tmp_path):
    Machine.directory = tmp_path
    Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, database=None)
    Machine.TestCase().runTest()
