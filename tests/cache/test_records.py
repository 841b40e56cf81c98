from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from mlxchat.cache.keys import BLOCK, namespace_key
from mlxchat.cache.records import (
    MAGIC,
    BadRecord,
    RecordHeader,
    TensorSpec,
    decode,
    decode_head,
    encode,
    head_length,
    stored_checksum,
)
from mlxchat.errors import CacheTrouble
from support.kvstore import NAMESPACE, Line, payload, random_ids, specs

pytestmark = pytest.mark.exact

LINE = Line(random_ids(3 * BLOCK))


def header_at(position: int = 2 * BLOCK, group: str = "global", tensors: tuple[TensorSpec, ...] = ()) -> RecordHeader:
    place = LINE.place(position)
    return RecordHeader(NAMESPACE, group, place, position, position - place.length, tensors or specs())


def encoded(header: RecordHeader) -> bytes:
    return b"".join(encode(header, payload(header.place, header.group, header.tensors)))


def reseal(record: bytearray) -> memoryview:
    """Give an altered record the checksums that fit it."""
    blob = int.from_bytes(record[12:16], "little")
    start = min(len(record), blob + 8 + int.from_bytes(record[blob : blob + 8], "little"))
    head = zlib.crc32(record[124:start], zlib.crc32(record[28:120], zlib.crc32(record[:24])))
    struct.pack_into("<I", record, 120, head)
    crc = zlib.crc32(record[28:], zlib.crc32(record[:24]))
    struct.pack_into("<I", record, 24, crc)
    return memoryview(record)


@pytest.mark.parametrize(("position", "group"), [(1, "state"), (255, "local:512"), (256, "global"), (700, "größe")])
def test_what_is_encoded_comes_back(position, group):
    header = header_at(position, group)
    record = encoded(header)
    back, tensors = decode(memoryview(record))
    assert back == header
    assert [bytes(view) for view in tensors.values()] == payload(header.place, group, header.tensors)
    assert len(record) == header.nbytes
    assert stored_checksum(record) == zlib.crc32(record[28:], zlib.crc32(record[:24]))


def test_the_layout_is_the_documented_one():
    header = replace(header_at(300, "local:512"), user="alice")
    record = encoded(header)
    assert record[:8] == MAGIC == bytes.fromhex("894D4C584B560D0A")
    fields = struct.unpack_from("<IIQIIQQII", record, 8)
    assert fields[:3] == (2, header.blob_offset, len(record) - header.blob_offset)
    assert fields[4:] == (44, 300, 256, 9, 5)
    assert record[56:88] == NAMESPACE
    assert record[88:120] == LINE.keys[1]
    start = header.blob_offset + len(header.safetensors_header)
    head = zlib.crc32(record[124:start], zlib.crc32(record[28:120], zlib.crc32(record[:24])))
    assert struct.unpack_from("<II", record, 120) == (head, 0)
    assert record[128:304] == LINE.ids[256:300].tobytes()
    assert record[304:318] == b"local:512alice"
    assert not any(record[318 : header.blob_offset])
    assert header.blob_offset % 64 == 0
    assert start % 64 == 0
    assert len(record) == start + sum(spec.nbytes for spec in header.tensors)


def test_the_blob_is_a_safetensors_file():
    tensors = (
        TensorSpec("k", "F32", (1, 2, 3, 4)),
        TensorSpec("half", "F16", (5,)),
        TensorSpec("packed", "U32", (2, 3)),
        TensorSpec("nothing", "F32", (1, 2, 3, 0)),
    )
    values = {
        "k": np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4),
        "half": np.arange(5, dtype=np.float16),
        "packed": np.arange(6, dtype=np.uint32).reshape(2, 3),
        "nothing": np.zeros((1, 2, 3, 0), dtype=np.float32),
    }
    header = header_at(tensors=tensors)
    record = b"".join(encode(header, [memoryview(array) for array in values.values()]))
    back = safetensors.numpy.load(record[header.blob_offset :])
    assert set(back) == set(values)
    for name, array in values.items():
        assert back[name].dtype == array.dtype
        assert np.array_equal(back[name], array)
    assert decode(memoryview(record))[0] == header


def test_the_payload_is_not_copied():
    header = header_at()
    data = [bytearray(view) for view in payload(header.place, header.group, header.tensors)]
    parts = encode(header, data)
    assert [view.obj for view in parts[1:]] == data
    assert all(view.obj is held for view, held in zip(parts[1:], data, strict=True))


def test_a_flip_of_any_byte_is_seen():
    record = bytearray(encoded(header_at(260, tensors=specs(4))))
    for at in range(len(record)):
        record[at] ^= 0x10
        with pytest.raises(BadRecord):
            decode(memoryview(record))
        record[at] ^= 0x10
    decode(memoryview(record))


def test_planted_fault_without_the_checksum_a_flip_passes(monkeypatch):
    record = bytearray(encoded(header_at()))
    record[-1] ^= 1
    monkeypatch.setattr("mlxchat.cache.records._checksum", lambda parts: stored_checksum(record))
    decode(memoryview(record))


@pytest.mark.parametrize("cut", [0, 1, 8, 127, 128, 400, -1])
def test_a_truncated_record_is_bad(cut):
    with pytest.raises(BadRecord):
        decode(memoryview(encoded(header_at())[:cut]))


@pytest.mark.parametrize("user", ["", "alice", "größe"])
def test_the_head_alone_says_what_the_record_is(user):
    header = replace(header_at(300, "local:512"), user=user)
    record = encoded(header)
    length = head_length(memoryview(record)[:2048])
    assert length == header.blob_offset + len(header.safetensors_header)
    assert decode_head(memoryview(record)[:length]) == (header, stored_checksum(record))


def test_a_flip_of_any_byte_of_a_head_is_seen():
    header = header_at(260, tensors=specs(4))
    length = header.nbytes - header.payload_bytes
    head = bytearray(encoded(header)[:length])
    for at in (at for at in range(length) if not 24 <= at < 28):
        head[at] ^= 0x10
        with pytest.raises(BadRecord):
            decode_head(memoryview(head)[: head_length(memoryview(head))])
        head[at] ^= 0x10
    decode_head(memoryview(head))


def test_planted_fault_without_the_heads_checksum_a_flip_of_an_id_passes(monkeypatch):
    header = header_at()
    head = bytearray(encoded(header)[: header.nbytes - header.payload_bytes])
    head[130] ^= 1
    stored = struct.unpack_from("<I", head, 120)[0]
    monkeypatch.setattr("mlxchat.cache.records._head_checksum", lambda head: stored)
    assert decode_head(memoryview(head))[0] != header


def test_a_longer_record_is_bad():
    with pytest.raises(BadRecord):
        decode(memoryview(encoded(header_at()) + b"\0"))


@given(st.binary(max_size=600))
def test_any_other_bytes_are_bad_and_nothing_worse(noise):
    with pytest.raises(BadRecord):
        decode(memoryview(noise))


def _spoilt() -> dict[str, bytearray]:
    """Records with a right checksum over fields that contradict each other."""
    header = header_at()
    good = encoded(header)
    blob = header.blob_offset
    length = int.from_bytes(good[blob : blob + 8], "little")
    out = {}

    def variant(name: str, at: int, data: bytes) -> None:
        out[name] = bytearray(good)
        out[name][at : at + len(data)] = data

    variant("no such version", 8, struct.pack("<I", 1))
    variant("no elements", 28, struct.pack("<I", 0))
    variant("too many elements", 28, struct.pack("<I", 257))
    variant("position off the grid", 32, struct.pack("<Q", 513))
    variant("rows after the position", 40, struct.pack("<Q", 513))
    variant("reserved bytes used", 124, struct.pack("<I", 1))
    variant("a conversation's name that is too long", 52, struct.pack("<I", 300))
    variant("group not UTF-8", 128 + 4 * BLOCK, b"\xff\xfe")
    variant("JSON length too large", blob, (1 << 40).to_bytes(8, "little"))
    variant("JSON that is a list", blob + 8, b"[]".ljust(length))
    variant("JSON that is not", blob + 8, b"{".ljust(length))
    variant("JSON nested without end", blob + 8, b"[" * length)
    for name, text in {
        "an entry that is a number": b'{"a":1}',
        "no dtype": b'{"a":{"shape":[1]}}',
        "an unknown dtype": b'{"a":{"dtype":"F7","shape":[128]}}',
        "a negative width": b'{"a":{"dtype":"F32","shape":[-128,-1]}}',
        "a word for a width": b'{"a":{"dtype":"F32","shape":["x"]}}',
        "too few tensors": b'{"a":{"dtype":"F32","shape":[64]}}',
        "too many tensors": b'{"a":{"dtype":"F32","shape":[640]}}',
    }.items():
        variant(name, blob + 8, text.ljust(length))
    return out


@pytest.mark.parametrize("name", list(_spoilt()))
def test_fields_that_contradict_each_other_are_bad(name):
    with pytest.raises(BadRecord):
        decode(reseal(_spoilt()[name]))


def test_bad_record_is_cache_trouble():
    assert issubclass(BadRecord, CacheTrouble)


def test_a_header_that_contradicts_itself_is_refused():
    place = LINE.place(300)
    for position, row_start in ((299, 256), (300, 301), (300, -1), (44 - BLOCK, 0)):
        with pytest.raises(ValueError, match=r"rows|position"):
            RecordHeader(NAMESPACE, "global", place, position, row_start, specs())
    with pytest.raises(ValueError, match="namespace"):
        RecordHeader(b"short", "global", place, 300, 256, specs())
    with pytest.raises(ValueError, match="no tensor"):
        TensorSpec("a", "F33", (1,))
    with pytest.raises(ValueError, match="too long"):
        RecordHeader(NAMESPACE, "global", place, 300, 256, specs(), "x" * 257)
    twice = RecordHeader(NAMESPACE, "global", place, 300, 256, (*specs(), *specs()))
    with pytest.raises(ValueError, match="one name"):
        _ = twice.nbytes


def test_a_payload_that_does_not_fit_is_refused():
    header = header_at()
    data = payload(header.place, header.group, header.tensors)
    for wrong in (data[:1], [data[0], data[1][:-1]], [*data, data[0]]):
        with pytest.raises(ValueError, match="payload"):
            encode(header, wrong)


def test_headers_differ_by_every_field():
    other_place = Line(random_ids(3 * BLOCK, seed=5)).place(512)
    base = header_at()
    variants = [
        base,
        header_at(group="local:512"),
        header_at(position=BLOCK),
        RecordHeader(namespace_key({}), "global", base.place, 512, 256, base.tensors),
        RecordHeader(NAMESPACE, "global", other_place, 512, 256, base.tensors),
        RecordHeader(NAMESPACE, "global", base.place, 768, 256, base.tensors),
        RecordHeader(NAMESPACE, "global", base.place, 512, 300, base.tensors),
        RecordHeader(NAMESPACE, "global", base.place, 512, 256, specs(32)),
        replace(base, user="alice"),
    ]
    for one, other in itertools.combinations(variants, 2):
        assert one != other
        assert (
            encode(one, payload(one.place, one.group, one.tensors))[0]
            != encode(other, payload(other.place, other.group, other.tensors))[0]
        )
