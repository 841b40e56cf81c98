"""`mlxchat doctor`: the machine, the backend, the versions, the folders, and what would help."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .shared_options import JsonReport
from .streams import Streams

_PACKAGES = (
    "mlxchat",
    "mlx",
    "mlx-lm",
    "mlx-vlm",
    "transformers",
    "tokenizers",
    "huggingface-hub",
    "safetensors",
    "gguf",
    "typer",
    "rich",
    "prompt-toolkit",
    "pip",
)
_SLOW_GFLOPS = 30
_LEAST_MACOS = 14
_LEAST_PYTHON = (3, 11)


def doctor(
    json_output: JsonReport = False,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Try the KV cache on small random models, and write a report.")
    ] = False,
    out: Annotated[
        str | None, typer.Option("--out", help="With --self-test: the report's file.", metavar="FILE")
    ] = None,
) -> None:
    """Say what mlxchat runs on here, and what would make it run better. Exit code 1 if it can't run at all."""
    if out is not None and not self_test:
        raise UsageError("--out means nothing without --self-test", "add --self-test, or leave it out")
    if self_test:
        _self_test(json_output, out)
        return
    rows, advice, works = _examine()
    if json_output:
        report = {"schema": "mlxchat.doctor/1", "works": works, **rows, "advice": advice}
        typer.echo(json.dumps(report, indent=2))
    else:
        width = max(len(name) for name in rows) + 2
        for name, value in rows.items():
            typer.echo(f"{name:{width}}{value}")
        for line in advice or ["nothing to mend"]:
            typer.echo(f"{'advice':{width}}{line}")
    if not works:
        raise typer.Exit(1)


def _self_test(json_output: bool, out: str | None) -> None:
    """Run it; exit code 1 if a restore was wrong."""
    from .self_test import REPORT, run_self_test, table

    streams, file = Streams(), Path(out or REPORT).expanduser()
    report = run_self_test(streams, {name: _version(name) for name in _PACKAGES}, file)
    if json_output:
        typer.echo(json.dumps(report, indent=2))
    else:
        for line in table(report):
            typer.echo(line)
    streams.note(f"{'all is right' if report['passed'] else 'something is wrong'}; the report is in {file}")
    if not report["passed"]:
        raise typer.Exit(1)


def _examine() -> tuple[dict[str, str], list[str], bool]:
    """(name → value, advice, whether MLX can run)."""
    advice = _machine_advice()
    backend_line, backend_advice = _backend()
    speed, works = _speed(advice)
    if backend_advice:
        advice.append(backend_advice)
    rows = {
        "machine": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": f"{platform.python_version()} ({sys.executable})",
        "backend": backend_line,
        "speed": speed,
        "memory": _memory(),
        "versions": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
        **_folders(),
    }
    return rows, advice, works


def _machine_advice() -> list[str]:
    system, machine = platform.system(), platform.machine()
    if system not in ("Darwin", "Linux"):
        return [f"MLX runs on macOS and Linux, not on {system}"]
    advice = []
    if system == "Darwin":
        if machine != "arm64":
            advice.append("this Python is an Intel one; on Apple silicon: arch -arm64 brew install python@3.13")
        major = platform.mac_ver()[0].partition(".")[0]
        if major.isdecimal() and int(major) < _LEAST_MACOS:
            advice.append(
                f"MLX needs macOS {_LEAST_MACOS} or newer; this is {platform.mac_ver()[0]}: softwareupdate -i -a"
            )
    elif machine not in ("x86_64", "aarch64"):
        advice.append(f"MLX has no build for Linux on {machine}")
    if sys.version_info < _LEAST_PYTHON:
        advice.append(f"mlxchat needs Python 3.11 or newer; this is {platform.python_version()}")
    return advice


def _backend() -> tuple[str, str]:
    from ..engine import backend

    return backend.describe()


def _speed(advice: list[str]) -> tuple[str, bool]:
    """One measured product. Appends to `advice` if MLX can't be imported or is slow."""
    from ..engine import backend

    try:
        gflops = backend.measure_gflops()
    except ImportError as error:
        advice.append(f"MLX can't be imported ({error}); install mlxchat again")
        return "MLX can't be imported", False
    if gflops < _SLOW_GFLOPS and not backend.describe()[1]:
        advice.append("matrix products are slow here; are other programs busy, or is MLXCHAT_BLAS off?")
    return f"{gflops:,.0f} GFLOP/s (float32 product of 512 × 512 matrices)", True


def _memory() -> str:
    import psutil

    memory = psutil.virtual_memory()
    return f"{memory.total / 1e9:.1f} GB, {memory.available / 1e9:.1f} GB free"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _folders() -> dict[str, str]:
    from ..engine import folders

    places: dict[str, Callable[[], Path]] = {
        "models": folders.models_dir,
        "hugging face": folders.huggingface_dir,
        "config": folders.config_dir,
        "cache": folders.cache_dir,
    }
    return {name: _place(where()) for name, where in places.items()}


def _place(path: Path) -> str:
    """A folder and the free space of the disk it is (or would be) on."""
    there = next((p for p in (path, *path.parents) if p.exists()), Path("/"))
    return f"{path} ({shutil.disk_usage(there).free / 1e9:.1f} GB free)"
