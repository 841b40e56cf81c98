"""Options that mean the same in several commands, each worded once; and how an option is written down.

Annotations are not put off here: typer would compile each of them again, and --help be slower for it.
"""

from typing import Annotated, Any, Literal

import typer

from .completions import model_names

MODEL, OUTPUT, CACHE = "Model", "Output", "KV cache"


def option(*names: str, help: str, panel: str, metavar: str | None = None, **more: Any) -> Any:  # noqa: A002
    """An option of a command; `panel` is the heading that it stands under."""
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, **more)


Model = Annotated[
    str | None,
    option(
        "-m",
        "--model",
        help="Alias, Hugging Face repo, folder, or part of a name.",
        panel=MODEL,
        metavar="NAME",
        autocompletion=model_names,
    ),
]
Template = Annotated[
    str | None,
    option("--template", help="Chat template: a built-in name or a file.", panel=MODEL, metavar="NAME|FILE"),
]
Adapter = Annotated[
    str | None,
    option("--adapter", help="LoRA adapter of mlx-lm's trainer, over a text model.", panel=MODEL, metavar="DIR"),
]
Think = Annotated[bool | None, option("--think/--no-think", help="Let the model reason first, or not.", panel=MODEL)]
Offline = Annotated[bool, option("--offline", help="Never use the network.", panel=MODEL)]
Yes = Annotated[bool, option("--yes", help="Download the model without asking.", panel=MODEL)]
Json = Annotated[bool, option("--json", help="Print one JSON object.", panel=OUTPUT)]
JsonReport = Annotated[bool, typer.Option("--json", help="Print JSON.")]
"""For commands that run no model: their other options are few and stand under no heading."""

Color = Annotated[
    Literal["auto", "always", "never"] | None,
    option("--color", help="Colour: auto (the default), always or never.", panel=OUTPUT, metavar="WHEN"),
]
Quiet = Annotated[bool, option("-q", "--quiet", help="Only errors on stderr.", panel=OUTPUT)]
Verbose = Annotated[
    int, option("-v", "--verbose", help="Say more; -vv adds tracebacks.", panel=OUTPUT, count=True, show_default=False)
]
NoCache = Annotated[bool, option("--no-cache", help="Don't reuse or store the KV cache.", panel=CACHE)]
CacheDir = Annotated[str | None, option("--cache-dir", help="Folder of the scratch file.", panel=CACHE, metavar="DIR")]
CacheBytes = Annotated[
    str | None, option("--cache-bytes", help="Its largest size, such as 2GB.", panel=CACHE, metavar="SIZE")
]
KvBits = Annotated[
    int | None, option("--kv-bits", help="Keep full-attention KV in 4 or 8 bits.", panel=CACHE, metavar="N")
]
KvGroupSize = Annotated[
    int | None, option("--kv-group-size", help="Values that share a scale: 32, 64 or 128.", panel=CACHE, metavar="N")
]
