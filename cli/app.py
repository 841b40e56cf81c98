"""The typer app: the default command's options shown as the program's own, the other commands beside them."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import Interrupted, UsageError
from .chat_command import chat
from .other_commands import OTHER_COMMANDS
from .routing import DEFAULT_COMMAND, OptionTable, route

HELP = """Chat with a model on this machine; reasoning that a later turn drops is never paid for twice.

mlxchat "question" answers once, mlxchat alone opens a chat, mlxchat COMMAND does the rest."""


class ChatCommand(TyperCommand):
    """`chat`, its options grouped in plain help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options under their panels' names."""
        write_options(self.get_params(ctx), ctx, formatter)


class Program(TyperGroup):
    """The root. It routes argv before it parses, so completion sees what a run would."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what `route` makes of `args`. While completing, an empty or a wrong line stays the root's."""
        if args or not ctx.resilient_parsing:
            try:
                args = route(args, self.option_table())
            except UsageError:
                if not ctx.resilient_parsing:
                    raise
        return super().parse_args(ctx, args)

    def make_context(self, *given: Any, **more: Any) -> Any:
        """Parse the command line. Raises Interrupted at Ctrl-C: typer would end the run without a word, in JSON too."""
        try:
            return super().make_context(*given, **more)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises Interrupted at Ctrl-C, as `make_context` does."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Command names, and the chat's options as the program's own."""
        found = super().shell_complete(ctx, incomplete)
        return [*found, *self.commands[DEFAULT_COMMAND].shell_complete(ctx, incomplete)]

    def option_table(self) -> OptionTable:
        """The options of chat that take a value, and the root's own options."""
        chat_options = [param for param in self.commands[DEFAULT_COMMAND].params if param.opts[0].startswith("-")]
        with_value = [
            name
            for param in chat_options
            if not (getattr(param, "is_flag", False) or getattr(param, "count", False))
            for name in param.opts
        ]
        own = [name for param in self.params for name in param.opts]
        return OptionTable(frozenset(with_value), frozenset([*own, "--help", "-h"]))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What may follow `mlxchat`."""
        return ["[OPTIONS]", "[PROMPT]..."]

    def list_commands(self, ctx: Any) -> list[str]:
        """Every command."""
        return [*self.commands, *OTHER_COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, imported now if need be; None if there is none."""
        other = OTHER_COMMANDS.get(cmd_name)
        return other.load(cmd_name) if other else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the other commands' names and help lines, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, other.summary) for name, other in OTHER_COMMANDS.items()])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write chat's options, the root's own, and the commands."""
        chat_params = [p for p in self.commands[DEFAULT_COMMAND].params if "--help" not in p.opts]
        write_options([*chat_params, *self.get_params(ctx)], ctx, formatter)
        self.format_commands(ctx, formatter)


def write_options(params: Any, ctx: Any, formatter: Any) -> None:
    """Write the help lines of `params` to `formatter`, a section per panel, the unnamed panel last."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for param in params:
        record = param.get_help_record(ctx)
        if record is not None:
            is_argument = param.param_type_name == "argument"
            name = "Arguments" if is_argument else getattr(param, "rich_help_panel", None) or "Other"
            panels.setdefault(name, []).append(record)
    for name in sorted(panels, key=lambda panel: panel == "Other"):
        with formatter.section(name):
            formatter.write_dl(panels[name])


def build_app() -> typer.Typer:
    """The whole program. Plain help: rich's boxes would more than double the time of --help."""
    app = typer.Typer(
        name="mlxchat",
        cls=Program,
        help=HELP,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    app.command(DEFAULT_COMMAND, cls=ChatCommand, hidden=True)(chat)
    return app


def _root() -> None:
    pass
