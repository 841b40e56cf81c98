"""Pictures from every kind of file: upright, on white, eight bits, first frame; and what is no picture says so."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import struct
import zlib
from pathlib import Path

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mlxchat.engine import pictures
from mlxchat.engine.pictures import FORMATS, Picture, decode_picture, open_picture
from mlxchat.engine.vision_kind import has_vision
from mlxchat.errors import DataError, InputError
from PIL import Image, ImageOps

pytestmark = pytest.mark.plain
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def saved(image: Image.Image, form: str = "PNG", **more: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **more)
    return out.getvalue()


def pixel(picture: Picture, x: int, y: int) -> tuple[int, ...]:
    at = 3 * (y * picture.width + x)
    return tuple(picture.pixels[at : at + 3])


def red_and_green(width: int = 4, height: int = 2) -> Image.Image:
    """Red, but for the top left pixel, which is green."""
    image = Image.new("RGB", (width, height), RED)
    image.putpixel((0, 0), GREEN)
    return image


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds nothing."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


class TestDecoding:
    def test_pixels_are_rgb_by_row_and_the_digest_covers_the_size(self) -> None:
        picture = decode_picture(saved(red_and_green()), "a.png")
        assert (picture.width, picture.height, len(picture.pixels)) == (4, 2, 24)
        assert picture.pixels == bytes(GREEN + 7 * RED)
        assert picture.digest == hashlib.sha256(struct.pack("<II", 4, 2) + picture.pixels).hexdigest()
        flat = decode_picture(saved(Image.new("RGB", (8, 1), RED)), "a.png")
        tall = decode_picture(saved(Image.new("RGB", (4, 2), RED)), "a.png")
        assert flat.pixels == tall.pixels
        assert flat.digest != tall.digest

    @pytest.mark.parametrize("form", FORMATS)
    def test_every_format(self, form: str) -> None:
        picture = decode_picture(saved(Image.new("RGB", (16, 8), BLUE), form), f"a.{form}")
        assert (picture.width, picture.height) == (16, 8)
        assert all(abs(a - b) < 4 for a, b in zip(pixel(picture, 3, 3), BLUE, strict=True))

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_exif_turns_it(self, orientation: int) -> None:
        image, exif = red_and_green(), Image.Exif()
        exif[0x0112] = orientation
        picture = decode_picture(saved(image, exif=exif), "a.png")
        turned = ImageOps.exif_transpose(Image.open(io.BytesIO(saved(image, exif=exif))))
        assert (picture.width, picture.height) == turned.size == ((2, 4) if orientation > 4 else (4, 2))
        assert picture.pixels == turned.tobytes()

    def test_broken_exif_turns_nothing(self) -> None:
        data = saved(red_and_green(), exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
        assert decode_picture(data, "a.png").pixels == red_and_green().tobytes()

    @pytest.mark.parametrize("mode", ["RGBA", "LA"])
    def test_alpha_is_put_on_white(self, mode: str) -> None:
        image = Image.new(mode, (2, 1), (0,) * (len(mode) - 1) + (255,))
        image.putpixel((1, 0), (0,) * len(mode))
        picture = decode_picture(saved(image), "a.png")
        assert [pixel(picture, x, 0) for x in (0, 1)] == [(0, 0, 0), WHITE]

    def test_half_transparent_is_half_white(self) -> None:
        picture = decode_picture(saved(Image.new("RGBA", (1, 1), (*RED, 128))), "a.png")
        assert pixel(picture, 0, 0) == (255, 127, 127)

    def test_a_palette_with_a_transparent_colour(self) -> None:
        image = Image.new("P", (2, 1), 0)
        image.putpalette([*RED, *BLUE])
        image.putpixel((1, 0), 1)
        assert decode_picture(saved(image), "a.png").pixels == bytes(RED + BLUE)
        assert decode_picture(saved(image, transparency=0), "a.png").pixels == bytes(WHITE + BLUE)

    def test_grayscale_and_black_and_white(self) -> None:
        assert pixel(decode_picture(saved(Image.new("L", (1, 1), 77)), "a.png"), 0, 0) == (77, 77, 77)
        assert pixel(decode_picture(saved(Image.new("1", (1, 1), 1)), "a.png"), 0, 0) == WHITE

    def test_sixteen_bits_are_scaled_not_clipped(self) -> None:
        values = numpy.array([[0, 255, 257, 32768, 65535]], dtype=numpy.uint16)
        picture = decode_picture(saved(Image.fromarray(values)), "a.png")
        assert [pixel(picture, x, 0)[0] for x in range(5)] == [0, 1, 1, 128, 255]

    def test_cmyk(self) -> None:
        picture = decode_picture(saved(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG"), "a.jpg")
        assert pixel(picture, 4, 4) == WHITE

    @pytest.mark.parametrize("form", ["GIF", "PNG", "WEBP"])
    def test_an_animation_gives_its_first_frame(self, form: str) -> None:
        frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
        data = saved(frames[0], form, save_all=True, append_images=frames[1:], duration=50, lossless=True)
        assert Image.open(io.BytesIO(data)).n_frames == 2
        assert pixel(decode_picture(data, "a"), 4, 4) == RED


class TestRefusals:
    @pytest.mark.parametrize("data", [b"", b"hello", b"%PDF-1.7\n", b"<svg/>", b"II*\x00\x08\x00\x00\x00"])
    def test_no_picture(self, data: bytes) -> None:
        with pytest.raises(DataError, match=r"^notes\.txt is not a picture$"):
            decode_picture(data, "notes.txt")

    def test_a_cut_off_file(self) -> None:
        noise = numpy.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=numpy.uint8)
        data = saved(Image.fromarray(noise))
        with pytest.raises(DataError, match=r"^a\.png is a broken picture: "):
            decode_picture(data[: len(data) // 2], "a.png")

    @pytest.mark.parametrize(("width", "height"), [(8000, 7000), (11000, 10000), (60000, 60000)])
    def test_a_huge_one_is_refused_by_its_header(self, width: int, height: int) -> None:
        with pytest.raises(DataError, match=r"has more than 50,000,000 pixels"):
            decode_picture(png_header(width, height), "bomb.png")

    def test_the_limit_is_a_number_of_pixels(self) -> None:
        data = saved(Image.new("RGB", (10, 10)))
        assert decode_picture(data, "a.png", max_pixels=100).width == 10
        with pytest.raises(DataError, match=r"more than 99 pixels \(10 × 10\)"):
            decode_picture(data, "a.png", max_pixels=99)

    def test_nothing_is_decoded_before_the_size_is_checked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def load(self: Image.Image) -> None:
            raise AssertionError("decoded")

        monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", load)
        with pytest.raises(DataError, match="pixels"):
            decode_picture(png_header(8000, 7000), "a.png")

    @settings(max_examples=300, deadline=None)
    @given(st.binary(max_size=400))
    @example(b"\x89PNG\r\n\x1a\n")
    @example(b"GIF89a\x01\x00\x01\x00")
    def test_any_bytes_give_a_picture_or_our_error(self, data: bytes) -> None:
        check_sound(data)

    @pytest.mark.parametrize("form", FORMATS)
    def test_any_damage_gives_a_picture_or_our_error(self, form: str) -> None:
        good = saved(Image.effect_noise((24, 24), 80).convert("RGB"), form)

        @settings(max_examples=60, deadline=None)
        @given(st.lists(st.tuples(st.integers(0, len(good) - 1), st.integers(0, 255)), max_size=12), st.integers(0, 9))
        def damaged(changes: list[tuple[int, int]], cut: int) -> None:
            data = bytearray(good)
            for at, value in changes:
                data[at] = value
            check_sound(bytes(data[: len(data) - cut * len(data) // 10]))

        damaged()

    def test_damage_would_be_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The fault: an exception of Pillow's gets through."""

        def broken(image: Image.Image) -> Image.Image:
            raise SyntaxError

        with pytest.raises(SyntaxError):
            broken(red_and_green())
        monkeypatch.setattr(pictures, "_as_rgb", broken)
        with pytest.raises(DataError):
            decode_picture(saved(red_and_green()), "a.png")


def check_sound(data: bytes) -> None:
    try:
        picture = decode_picture(data, "x", max_pixels=1_000_000)
    except DataError:
        return
    assert len(picture.pixels) == 3 * picture.width * picture.height > 0


class TestSources:
    def test_path_file_url_and_data_url_are_the_same_picture(self, tmp_path: Path) -> None:
        path = tmp_path / "a b.png"
        path.write_bytes(saved(red_and_green()))
        body = base64.b64encode(path.read_bytes()).decode()
        wanted = decode_picture(path.read_bytes(), "a.png")
        percents = "".join(f"%{byte:02x}" for byte in path.read_bytes())
        sources = [str(path), path.as_uri(), f"data:image/png;base64,{body}", f"data:image/png,{percents}"]
        sources.append(f"data:;base64,{body[:40]}\n{body[40:]}".replace("+", "%2B"))
        assert [open_picture(source) for source in sources] == [wanted] * 5

    @pytest.mark.parametrize("source", ["data:", "data:image/png;base64", "data:image/png;base64,!!!", "data:,hello"])
    def test_a_data_url_that_holds_none(self, source: str) -> None:
        with pytest.raises(DataError, match=r"^the data: URL"):
            open_picture(source)

    def test_the_network_is_never_asked(self) -> None:
        with pytest.raises(InputError, match=r"^https://example\.org/a\.png is not on this machine$"):
            open_picture("https://example.org/a.png")

    def test_missing_unreadable_folder_and_odd_names(self, tmp_path: Path) -> None:
        for source in (str(tmp_path / "none.png"), str(tmp_path), "a\0b.png", "x" * 5000, ""):
            with pytest.raises(InputError):
                open_picture(source)

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InputError, match="is no file"):
            open_picture(str(tmp_path / "pipe"))

    def test_a_file_too_large_to_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pictures, "MOST_BYTES", 1_000_000)
        (tmp_path / "a.png").write_bytes(bytes(1_000_001))
        with pytest.raises(DataError, match="larger than 1 MB"):
            open_picture(str(tmp_path / "a.png"))


@pytest.mark.parametrize(
    ("config", "sees"),
    [
        ({"model_type": "llama"}, False),
        ({"model_type": "gemma3", "vision_config": {"hidden_size": 8}}, True),
        ({"model_type": "gemma3", "vision_config": None}, False),
        ({"model_type": "gemma3", "vision_config": {}}, False),
        ({"model_type": "qwen3_5", "vision_config": {"hidden_size": 8, "skip_vision": True}}, False),
        ({"model_type": "llava-qwen2", "mm_vision_tower": "mobileclip"}, True),
        ({"model_type": "phi3_v", "img_processor": {"name": "clip"}}, True),
    ],
)
def test_a_models_kind_is_in_its_config(config: dict[str, object], sees: bool) -> None:
    assert has_vision(config) is sees
