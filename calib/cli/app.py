"""The command line: thin. Results go to stdout, progress and messages to stderr.

Exit codes: 0 done, 1 a gate failed, 2 usage, 3 bad data, 4 a fault of calib itself. Heavy imports live inside the
commands, so that ``calib --help`` is immediate.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Annotated

import typer

from calib._version import __version__
from calib.cli.output import note
from calib.errors import EXIT_DATA, EXIT_DONE, EXIT_INTERNAL, CalibError, printable

app = typer.Typer(
    name="calib",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Calibrate a performance model of LLM serving against silicon: what pipeline parallelism costs, and why.",
    epilog="Exit codes: 0 done, 1 a gate failed, 2 usage, 3 bad data, 4 a fault of calib itself.",
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(f"calib {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line and end the process with a documented exit code."""
    _prepare()
    code: object
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except CalibError as error:
        note(f"error: {error}")
        code = error.exit_code
    except typer.Abort:
        code = 130
    except SystemExit as stop:  # click's answer to a reader that went away, as in `calib ingest | head`
        code = EXIT_DONE if type(sys.stdout).__name__ == "PacifyFlushWrapper" else stop.code
    except OSError as error:
        code = _output_gone(error)
    except Exception as error:
        code = _other(error)
    sys.exit(code if isinstance(code, int) else EXIT_DONE)


def _prepare() -> None:
    """Streams that cannot fail on a character or because they are closed, and figures without a window."""
    os.environ["MPLBACKEND"] = "agg"
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _output_gone(error: OSError) -> int:
    """stdout is full or closed. The reader that left early (EPIPE) wanted no more; anything else lost results."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the flush at exit does not fail again
    if error.errno == errno.EPIPE:
        return EXIT_DONE
    note(f"error: the output cannot be written ({error.strerror or error}); free some space or choose another target")
    return EXIT_DATA


def _other(error: Exception) -> int:
    """Exit code and message for what is not a `CalibError`: wrong usage, or a fault of calib."""
    exit_code, message = getattr(error, "exit_code", None), getattr(error, "format_message", None)
    if exit_code is not None and message is not None:  # click's own usage errors
        note(f"error: {printable(message()).rstrip('.')}; see `calib --help`")
        return int(exit_code)
    if os.environ.get("CALIB_DEBUG"):
        raise error
    said = printable(f"{type(error).__name__}: {error}")
    note(f"internal error: {said}; set CALIB_DEBUG=1 for the traceback, and please report it")
    return EXIT_INTERNAL
