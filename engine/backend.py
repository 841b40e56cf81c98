"""The CPU backend's BLAS: on Linux, load a fast one before MLX is imported, and say which one it is.

The Linux wheel of MLX links the reference BLAS, which runs at a few GFLOP/s. A library loaded into the global symbol
scope before the first `import mlx.core` answers the same calls thirty times faster. On macOS nothing is done: MLX runs
on Metal, in the model's own dtype.

MLXCHAT_BLAS: `auto` (default), `off` (keep the wheel's own, for bit-exact tests), or a library's path.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError

Kind = Literal["metal", "fast", "reference", "off", "late"]

_INSTALL_HINT = "install OpenBLAS (Debian, Ubuntu: apt-get install libopenblas0-pthread; Fedora: dnf install openblas)"


@dataclass(frozen=True)
class Backend:
    """What runs the matrix products.

    kind     metal: MLX's own GPU kernels; fast: `library` was loaded; reference: none was found; off: switched off;
             late: MLX had been imported before anyone asked, so the choice could no longer be made
    library  path or soname of the library that was loaded, "" if none
    core     the kernel OpenBLAS picked for this processor, "" if unknown
    """

    kind: Kind
    library: str = ""
    core: str = ""

    @property
    def is_fast(self) -> bool:
        """Whether float32 products run at the machine's speed."""
        return self.kind in ("metal", "fast")


_chosen: Backend | None = None


def prepare() -> Backend:
    """Choose and load the BLAS, once per process; later calls return the same answer.

    Must run before the first `import mlx.core`. Raises UsageError if MLXCHAT_BLAS names a library that can't be used.
    """
    global _chosen
    if _chosen is None:
        _chosen = _choose()
    return _chosen


def _choose() -> Backend:
    if sys.platform != "linux":
        return Backend("metal")
    wish = os.environ.get("MLXCHAT_BLAS", "auto") or "auto"
    if wish == "off":
        return Backend("off")
    if "mlx.core" in sys.modules:
        return Backend("late")
    _name_core()
    if wish != "auto":
        loaded = _load(wish)
        if loaded is None:
            raise UsageError(
                f"MLXCHAT_BLAS names {wish}, which is no library with cblas_sgemm in it",
                "unset it, or set it to auto, off, or the path of a BLAS",
            )
        return loaded
    for candidate in _candidates():
        loaded = _load(candidate)
        if loaded is not None:
            return loaded
    return Backend("reference")


def _candidates() -> Iterator[str]:
    """The system's OpenBLAS, then the copy that opencv (a dependency of mlx-vlm) brings along."""
    yield "libopenblas.so.0"
    spec = importlib.util.find_spec("cv2")
    if spec is not None and spec.origin:
        site = Path(spec.origin).parent.parent
        for folder in sorted(site.glob("opencv_python*.libs")):
            yield from (str(path) for path in sorted(folder.glob("libopenblas*.so*")))


def _load(library: str) -> Backend | None:
    """Put `library` into the global symbol scope, or None if it isn't there or has no plain cblas_sgemm.

    scipy's and numpy's own copies prefix their symbols; those would load and change nothing.
    """
    try:
        if not hasattr(ctypes.CDLL(library, mode=ctypes.RTLD_LOCAL), "cblas_sgemm"):
            return None
        handle = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
    core = ""
    if hasattr(handle, "openblas_get_corename"):
        handle.openblas_get_corename.restype = ctypes.c_char_p
        core = (handle.openblas_get_corename() or b"").decode()
    return Backend("fast", library, core)


def _name_core() -> None:
    """Name the processor's kernel: an older OpenBLAS takes a newer Xeon for one without AVX."""
    if platform.machine() != "x86_64" or "OPENBLAS_CORETYPE" in os.environ:
        return
    flags = _cpu_flags()
    if "avx512f" in flags:
        os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"
    elif "avx2" in flags:
        os.environ["OPENBLAS_CORETYPE"] = "Haswell"


def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def compute_dtype() -> str | None:
    """The dtype every model is computed in, by its MLX name, or None for the model's own.

    float32 on the Linux CPU backend: half precision runs there at 3 to 6 GFLOP/s whatever the BLAS.
    """
    return "float32" if sys.platform == "linux" else None


def evaluate(model: Any) -> None:
    """Evaluate a lazily loaded module's parameters in that dtype. Converted before they are read: never two copies."""
    import mlx.core as mx

    wanted = compute_dtype()
    if wanted is not None:
        model.set_dtype(getattr(mx, wanted))
    mx.eval(model.parameters())


def describe() -> tuple[str, str]:
    """One line that names the backend, and one that says what to install if it is the slow one (else "")."""
    backend = prepare()
    core = f", {backend.core} kernels" if backend.core else ""
    match backend.kind:
        case "metal":
            return "MLX on Metal", ""
        case "fast":
            return f"MLX on the CPU, BLAS {backend.library}{core}", ""
        case "off":
            return "MLX on the CPU, the wheel's own BLAS (MLXCHAT_BLAS=off)", ""
        case "late":
            return "MLX on the CPU, BLAS unknown (MLX was imported first)", "start mlxchat by its own command"
        case "reference":
            return "MLX on the CPU, the wheel's own slow BLAS", _INSTALL_HINT


def measure_gflops(size: int = 512, repeats: int = 3) -> float:
    """Best speed of a float32 product of two size × size matrices, in GFLOP/s. Imports MLX."""
    import time

    import mlx.core as mx

    a = mx.random.normal((size, size))
    mx.eval(a @ a)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        mx.eval(a @ a)
        best = min(best, time.perf_counter() - start)
    return float(2 * size**3 / best / 1e9)
