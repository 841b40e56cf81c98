"""How long `mlxchat --help` takes against a typer app with the same commands and options and nothing in them.

    python benchmarks/help.py [--pairs 15] [--json FILE]

The other app is generated from ours by looking at its commands. Both run in fresh processes, alternately; the ratio is
the median of the pairs'. The bar is 1.3.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BAR = 1.3
OURS = "from mlxchat.cli.main import main\nmain()\n"
HEAD = """import typer
from typing import Annotated, Any, Literal, Optional
"""


def generated() -> str:
    """The source of the empty app."""
    from mlxchat.cli.app import build_app
    from typer.main import get_command

    lines = [HEAD]
    group_source("app", get_command(build_app()), lines)
    lines.append("if __name__ == '__main__':\n    app(prog_name='mlxchat')\n")
    return "\n".join(lines)


def group_source(variable: str, group: Any, lines: list[str]) -> None:
    """Append the source of one typer app, its commands and groups."""
    lines.append(f"{variable} = typer.Typer(help={group.help!r}, rich_markup_mode=None)\n")
    if variable == "app":
        lines.append("@app.callback()\ndef root() -> None:\n    pass\n")
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        inner = f"{variable}_{name}"
        if hasattr(command, "commands"):
            group_source(inner, command, lines)
            lines.append(f"{variable}.add_typer({inner}, name={name!r})\n")
        else:
            parameters = ",\n    ".join(parameter_source(p) for p in command.params if p.name != "help")
            lines.append(
                f"@{variable}.command({name!r}, help={command.help!r}, hidden={command.hidden!r})\n"
                f"def {inner}(\n    {parameters}\n) -> None:\n    pass\n"
            )


def parameter_source(param: Any) -> str:
    """One parameter of a command function."""
    more = {"help": param.help, "metavar": param.metavar, "min": param.min, "max": param.max}
    kept = ", ".join(f"{key}={value!r}" for key, value in more.items() if value is not None)
    annotation = annotation_source(param)
    default = "" if param.required else f" = {param.default!r}"
    if param.param_type_name == "argument":
        return f"{param.name}: Annotated[{annotation}, typer.Argument({kept})]{default}"
    names = [repr(name) for name in param.opts]
    if param.secondary_opts:
        names = [repr("/".join([param.opts[0], param.secondary_opts[0]]))]
    count = ", count=True" if param.count else ""
    return f"{param.name}: Annotated[{annotation}, typer.Option({', '.join(names)}, {kept}{count})]{default}"


def annotation_source(param: Any) -> str:
    """The type as the function declares it."""
    kind = param.type_descriptor.annotation
    text = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    text = text.replace("typing.", "")
    return text if param.required or param.default is not None else f"Optional[{text}]"


def run(source: Path) -> tuple[float, str]:
    """Milliseconds and stdout of one `--help`."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, str(source), "--help"], capture_output=True, text=True, check=True)
    return 1000 * (time.perf_counter() - started), done.stdout


def measure(pairs: int) -> dict[str, Any]:
    """Run both alternately; the report."""
    with tempfile.TemporaryDirectory() as folder:
        ours, empty = Path(folder, "ours.py"), Path(folder, "empty.py")
        ours.write_text(OURS, encoding="utf-8")
        empty.write_text(generated(), encoding="utf-8")
        outputs = [run(ours)[1], run(empty)[1]]  # and byte code, the page cache
        timed = [(run(ours)[0], run(empty)[0]) for _ in range(pairs)]
    for name in ("models", "doctor"):
        assert all(name in output for output in outputs), "both must list the same commands"
    ratios = [a / b for a, b in timed]
    return {
        "schema": "mlxchat.benchmark.help/1",
        "pairs": pairs,
        "ours_ms": round(statistics.median(a for a, _ in timed), 1),
        "empty_ms": round(statistics.median(b for _, b in timed), 1),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_quartiles": [round(q, 3) for q in statistics.quantiles(ratios, n=4)[::2]] if pairs > 1 else [],
        "bar": BAR,
        "python": platform.python_version(),
    }


def main() -> None:
    """Measure, print a table, write the JSON, exit 1 over the bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report = measure(arguments.pairs)
    print(f"{'mlxchat --help':24}{report['ours_ms']:8.1f} ms")
    print(f"{'empty app --help':24}{report['empty_ms']:8.1f} ms")
    print(f"{'ratio (median of pairs)':24}{report['ratio']:8.3f}   bar {BAR}, quartiles {report['ratio_quartiles']}")
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    sys.exit(report["ratio"] > BAR)


if __name__ == "__main__":
    main()
