"""One run of the program, and the one place that turns an error into two lines on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback

from typer.main import get_command

from ..errors import Interrupted, MlxchatError, OutputError, UsageError
from .app import build_app
from .failures import Reported, as_mlxchat_error, lines, output_error
from .interrupts import unheard
from .routing import COMMANDS, PROGRAM

DEBUG_VARIABLE = "MLXCHAT_DEBUG"
_OF_A_FULL_STREAM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def run(argv: list[str]) -> int:
    """Run the program on `argv`; the exit code."""
    try:
        code = _run_command(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of stdout has gone: nothing to say
        _give_up_stdout()
        return 0
    except OSError as error:  # from the flush: what fails inside a command is dealt with there
        _give_up_stdout()
        return _explain(output_error(error), argv)
    return code


def _run_command(argv: list[str]) -> int:
    try:
        result = get_command(build_app()).main(argv, prog_name=PROGRAM, standalone_mode=False)
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # typer makes an exit code of 1 of it
            raise leaving.__context__ from None
        raise
    except Reported as reported:
        if isinstance(reported.error, OutputError):
            _give_up_stdout()
        return _explain(reported.error, argv)
    except (Exception, KeyboardInterrupt) as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # `mlxchat models` alone; its message is the help text
            sys.stderr.write(f"{error}\n")
            return UsageError.exit_code
        return _fail(error, argv)
    return result if isinstance(result, int) else 0


def _fail(error: BaseException, argv: list[str]) -> int:
    """End a command that `error` broke off, its JSON not yet printed. The exit code."""
    failure = as_mlxchat_error(error)
    if isinstance(error, OSError) and error.errno in _OF_A_FULL_STREAM and error.filename is None:
        failure = output_error(error)  # what commands write elsewhere has errors of its own
        failure.__cause__ = error
    try:
        with unheard():  # one press can come twice, and the second would cost the JSON
            print_json_failure(failure, argv)
    except OutputError as refused:
        failure = refused
    if isinstance(failure, OutputError) and _stdout_refuses():
        _give_up_stdout()
    return _explain(failure, argv)


def _stdout_refuses() -> bool:
    """Whether stdout still holds what it could not write."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _explain(error: MlxchatError, argv: list[str]) -> int:
    """Say the cause and the help on stderr, and the traceback where it was asked for. The exit code."""
    try:
        if wants_traceback(argv):
            traceback.print_exception(error, file=sys.stderr)
        if not isinstance(error, Interrupted):  # whoever pressed Ctrl-C knows
            sys.stderr.write("".join(f"{line}\n" for line in lines(error)))
        sys.stderr.flush()
    except OSError:
        pass  # nobody reads stderr any more; the exit code still tells
    return error.exit_code


def wants_traceback(argv: list[str]) -> bool:
    """Whether -vv is among the options, or MLXCHAT_DEBUG is set. Asked of argv: the parser may be what failed."""
    options = _options(argv)
    times = sum(arg in ("-v", "--verbose") for arg in options)
    return bool(os.environ.get(DEBUG_VARIABLE)) or times > 1 or any(arg.startswith("-vv") for arg in options)


def _options(argv: list[str]) -> list[str]:
    return argv[: argv.index("--")] if "--" in argv else argv


def print_json_failure(error: MlxchatError, argv: list[str]) -> None:
    """With --json or --jsonl on the command line stdout holds JSON even when the command never ran."""
    options = _options(argv)
    if "--json" in options or "--jsonl" in options:
        from .json_output import print_failure

        print_failure(error, command=argv[0] if argv[0] in COMMANDS else None, options=options)


def _give_up_stdout() -> None:
    """Stdout is past writing to: nothing must be left for the interpreter to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
