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


def doctor(json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what mlxchat runs on here, and what would make it run better. Exit code 1 if it can't run at all."""
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
    if sys.platform == "darwin" and platform.machine() != "arm64":
        return ["this Python is an Intel one; on Apple silicon: arch -arm64 brew install python@3.13"]
    if sys.platform not in ("darwin", "linux"):
        return [f"MLX runs on macOS and Linux, not on {platform.system()}"]
    return []


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
