from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from mlxchat.cache import budget
from mlxchat.cache.budget import default_budget, default_queue_bytes, is_memory_backed

pytestmark = pytest.mark.exact

GIB = 1024**3


def mounts(monkeypatch, *pairs: tuple[str, str]) -> None:
    held = [SimpleNamespace(mountpoint=point, fstype=kind) for point, kind in pairs]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **asked: held if asked["all"] else [])


def free(monkeypatch, disk: int = 0, memory: int = 0) -> None:
    monkeypatch.setattr(psutil, "disk_usage", lambda path: SimpleNamespace(free=disk))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=memory))


@pytest.mark.parametrize(
    ("disk", "expected"),
    [(80 * GIB, 20 * GIB), (4000 * GIB, 64 * GIB), (3 * GIB, 1 * GIB), (1 * GIB, GIB // 2), (0, 0)],
)
def test_a_share_of_the_free_disk_within_floor_and_cap(tmp_path, monkeypatch, disk, expected):
    mounts(monkeypatch, ("/", "ext4"))
    free(monkeypatch, disk=disk)
    assert default_budget(tmp_path / "not" / "yet" / "there") == expected


@pytest.mark.parametrize(
    ("memory", "expected"), [(64 * GIB, 8 * GIB), (1000 * GIB, 16 * GIB), (GIB, GIB // 4), (GIB // 4, GIB // 8)]
)
def test_a_share_of_the_free_memory_where_the_directory_is_kept_in_memory(tmp_path, monkeypatch, memory, expected):
    mounts(monkeypatch, ("/", "tmpfs"))
    free(monkeypatch, disk=900 * GIB, memory=memory)
    assert default_budget(tmp_path) == expected


@pytest.mark.parametrize(("memory", "expected"), [(8 * GIB, GIB // 2), (100 * GIB, GIB), (GIB, 192 * 1024**2)])
def test_the_queue_takes_a_share_of_the_free_memory(monkeypatch, memory, expected):
    free(monkeypatch, memory=memory)
    assert default_queue_bytes() == expected


def test_the_nearest_mount_decides(tmp_path, monkeypatch):
    inner = tmp_path / "a"
    (inner / "b").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    mounts(monkeypatch, ("/", "ext4"), (str(tmp_path), "apfs"), (str(inner), "tmpfs"))
    assert is_memory_backed(inner / "b" / "missing")
    assert not is_memory_backed(tmp_path / "ab")
    assert not is_memory_backed(Path("/"))
    (tmp_path / "link").symlink_to(inner)
    assert is_memory_backed(tmp_path / "link")


def test_of_two_mounts_on_one_point_the_later_is_seen(tmp_path, monkeypatch):
    mounts(monkeypatch, ("/", "ext4"), (str(tmp_path), "ext4"), (str(tmp_path), "ramfs"))
    assert is_memory_backed(tmp_path)


def test_no_mounts_known_is_no_memory(tmp_path, monkeypatch):
    mounts(monkeypatch)
    assert not is_memory_backed(tmp_path)


def test_this_machine_answers(tmp_path):
    assert default_budget(tmp_path) >= 0
    assert default_queue_bytes() > 0
    assert budget.is_memory_backed(tmp_path) in {True, False}
