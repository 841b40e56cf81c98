"""Which BLAS a process gets, and that choosing it never starts MLX."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlxchat.engine import backend

pytestmark = [
    pytest.mark.plain,
    pytest.mark.skipif(sys.platform != "linux", reason="Metal needs no BLAS"),
]


def run(code: str, **environment: str) -> str:
    path = os.pathsep.join(p for p in sys.path if p)
    clean = {k: v for k, v in os.environ.items() if k not in ("MLXCHAT_BLAS", "OPENBLAS_CORETYPE")}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nfrom mlxchat.engine import backend\n{code}"],
        capture_output=True,
        text=True,
        env={**clean, "PYTHONPATH": path, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_preparing_imports_no_mlx_and_is_done_once() -> None:
    code = "print(backend.prepare() is backend.prepare(), any(m.split('.')[0] == 'mlx' for m in sys.modules))"
    assert run(code) == "True False"


def test_a_fast_blas_is_found_and_takes_the_products_over() -> None:
    """Which library a call of cblas_sgemm ends up in, not how fast it is: that is for `doctor` to say."""
    code = (
        "import ctypes\n"
        "b = backend.prepare()\n"
        "import mlx.core\n"
        "address = lambda library: ctypes.cast(ctypes.CDLL(library).cblas_sgemm, ctypes.c_void_p).value\n"
        "print(b.kind, address(None) == address(b.library) if b.library else None)"
    )
    assert run(code) == "fast True"
    assert run(code, MLXCHAT_BLAS="off") == "off None"


def test_the_kernel_is_named_from_the_processors_flags() -> None:
    code = "import os; backend.prepare(); print(os.environ.get('OPENBLAS_CORETYPE'))"
    flags = backend._cpu_flags()
    expected = "SkylakeX" if "avx512f" in flags else "Haswell" if "avx2" in flags else "None"
    assert run(code) == expected
    assert run(code, OPENBLAS_CORETYPE="Nehalem") == "Nehalem"


def test_a_path_is_used_and_a_wrong_one_is_an_error(tmp_path: Path) -> None:
    library = run("print(backend.prepare().library)")
    assert run("print(backend.prepare().library)", MLXCHAT_BLAS=library) == library
    code = (
        "from mlxchat.errors import UsageError\n"
        "try:\n    backend.prepare()\nexcept UsageError as e:\n    print(e.exit_code, 'MLXCHAT_BLAS' in e.message)"
    )
    assert run(code, MLXCHAT_BLAS=str(tmp_path / "none.so")) == "2 True"
    assert run(code, MLXCHAT_BLAS="libm.so.6") == "2 True"


def test_too_late_is_said() -> None:
    code = "import mlx.core; print(backend.prepare().kind, '|'.join(backend.describe()))"
    assert run(code).startswith("late ")
    assert "imported first" in run(code)


def test_without_any_blas_the_advice_names_what_to_install() -> None:
    code = "backend._candidates = lambda: iter(()); print(*backend.describe(), sep='|')"
    line, advice = run(code).split("|")
    assert "slow" in line
    assert "libopenblas" in advice


def test_this_process_keeps_the_wheels_own_blas() -> None:
    """The bit-exact tests of this process mean nothing on another one; `make test` switches it off for them."""
    assert backend.prepare().kind == ("off" if os.environ.get("MLXCHAT_BLAS") == "off" else "fast")
    assert backend.compute_dtype() == "float32"


_IMPORTS = """
import importlib, os, pkgutil, sys, mlxchat
from mlxchat.engine import backend

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "mlx.core" and backend._chosen is None:
            os._exit(1)

sys.meta_path.insert(0, Watch())
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        importlib.import_module(name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


def test_no_command_brings_mlx_in_before_the_blas_is_chosen() -> None:
    """Whatever is imported first: a module of the program that needs MLX has to come by way of the engine."""
    root = Path(backend.__file__).parents[1]
    rooms = [path for room in ("cli", "transcripts") for path in sorted((root / room).rglob("*.py"))]
    rooms += [root / "engine" / f"{name}.py" for name in ("chat", "engine", "prompts", "catalog", "doctor")]
    names = [".".join(("mlxchat", *path.relative_to(root).with_suffix("").parts)) for path in rooms if path.exists()]
    modules = [name for name in names if not name.endswith("__init__")]
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS, *modules],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


def test_planted_a_module_that_brings_mlx_in_by_itself_is_seen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS, "mlxchat.engine.request"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=False,
    )
    assert done.stdout == "mlxchat.engine.request\n"
