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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib._version import __version__
from calib.cli.output import (
    finding_rows,
    frame_rows,
    note,
    print_findings,
    print_json,
    print_table,
    working,
)
from calib.errors import (
    EXIT_DATA,
    EXIT_DONE,
    EXIT_INTERNAL,
    CalibError,
    GateFailedError,
    UsageError,
    printable,
)

if TYPE_CHECKING:
    from calib.workflow import Options, Result

app = typer.Typer(
    name="calib",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Calibrate a performance model of LLM serving against silicon: what pipeline parallelism costs, and why.",
    epilog="Exit codes: 0 done, 1 a gate failed, 2 usage, 3 bad data, 4 a fault of calib itself.",
)

CampaignArg = Annotated[
    str,
    typer.Argument(metavar="[CAMPAIGN]", help="A folder with a campaign.toml, or the name of a shipped campaign."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout, in full precision.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Stop with exit 3 where anything would be set aside.")]
MatchingOption = Annotated[
    str | None,
    typer.Option(
        "--matching",
        help="'peak' (each side at its best concurrency) or 'matched'; the campaign's own if left out.",
    ),
]
FloorOption = Annotated[
    float, typer.Option("--error-floor", help="Relative error of a throughput below which none is believed.")
]
BalanceOption = Annotated[
    str,
    typer.Option("--balance", help="Balance of 'decode' steps, of the workload's 'mixed' steps, or 'none' (1)."),
]
FormOption = Annotated[
    str,
    typer.Option(
        "--form", help="Residual form: log2, power, hyperbolic, log2_concurrency, or free (one value a pp level)."
    ),
]
ReferenceOption = Annotated[
    str,
    typer.Option(
        "--reference",
        help="What the coefficients multiply: the measured TP=G/PP1 'baseline', or the 'model's own ideal throughput.",
    ),
]
PoolingOption = Annotated[
    str, typer.Option("--pooling", help="'none', or 'partial': each model drawn towards the others of its backend.")
]
DEFAULT = "h200-vllm-pp"


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(f"calib {__version__}")
        raise typer.Exit


@app.command("run")
def run_command(
    campaign: CampaignArg = DEFAULT,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("reports"),
    matching: MatchingOption = None,
    error_floor: FloorOption = 0.02,
    balance: BalanceOption = "decode",
    form: FormOption = "log2",
    reference: ReferenceOption = "baseline",
    pooling: PoolingOption = "none",
    strict: StrictOption = False,
    json: JsonOption = False,
    gate_error: Annotated[
        float | None,
        typer.Option(
            "--gate-error", help="Exit 1 where the left-out mean error of a backend exceeds this, in percentage points."
        ),
    ] = None,
    gate_refused: Annotated[
        bool, typer.Option("--gate-refused", help="Exit 1 where a coefficient is refused.")
    ] = False,
) -> None:
    """The main job: campaign in, coefficient file and accuracy report out."""
    with working("calibrating"):
        from calib.workflow import run

        result, written = run(
            campaign, out=out, options=_options(matching, error_floor, strict, balance, form, reference, pooling)
        )
    if json:
        print_json(
            {
                "digest": result.coefficients.digest,
                "new": written.new,
                "folder": str(written.folder),
                "files": [str(f) for f in written.files],
                "coefficients": frame_rows(result.fit.table()),
                "accuracy": frame_rows(result.accuracy.summary),
                "findings": finding_rows(result.findings),
            }
        )
    else:
        from calib.cli.showing import with_notes
        from calib.reporting import report_tables

        shown = report_tables(result.report_data)
        for name in ("observed", "decomposition", "coefficients", "accuracy", "published_accuracy"):
            if name in shown:
                table = with_notes(shown[name]) if name == "coefficients" else shown[name]
                print_table(table, 11 if name == "decomposition" else None)
        print_findings(result.findings)
        state = "Wrote" if written.new else "Nothing new; these results are there already"
        print(f"{state} (digest {result.coefficients.digest[:12]})")
        figures = [f for f in written.files if f.parent != written.folder]
        for file in written.files:
            if file not in figures:
                print(f"  {file}")
        if figures:
            print(f"  {figures[0].parent} ({len(figures)} figures)")
    _gates(result, gate_error, gate_refused)


@app.command()
def decompose(
    campaign: CampaignArg = DEFAULT,
    matching: MatchingOption = None,
    error_floor: FloorOption = 0.02,
    balance: BalanceOption = "decode",
    reference: ReferenceOption = "baseline",
    strict: StrictOption = False,
    json: JsonOption = False,
) -> None:
    """Observed efficiency, and what stage imbalance explains of it."""
    from calib.efficiency import decompose as decompose_campaign
    from calib.errors import NothingToFitError
    from calib.reporting.tables import decomposition_table
    from calib.workflow import check_strict, load_campaign

    loaded = load_campaign(campaign, strict=strict)
    options = _options(matching, error_floor, strict, balance, reference=reference)
    result = decompose_campaign(
        loaded, matching=options.matching, error_floor=options.error_floor, balance=options.balance,
        reference=options.reference,
    )  # fmt: skip
    findings = (*loaded.findings, *result.findings)
    check_strict(findings, strict)
    if json:
        print_json({"campaign": loaded.name, "points": frame_rows(result.table), "findings": finding_rows(findings)})
    else:
        print_table(decomposition_table(result), 11)
        print_findings(findings)
    if result.table.empty:
        raise NothingToFitError(f"no efficiency is left in campaign '{loaded.name}'", remedy="see the reasons above")


@app.command()
def fit(
    campaign: CampaignArg = DEFAULT,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the coefficient file here as well.")] = None,
    matching: MatchingOption = None,
    error_floor: FloorOption = 0.02,
    balance: BalanceOption = "decode",
    form: FormOption = "log2",
    reference: ReferenceOption = "baseline",
    pooling: PoolingOption = "none",
    strict: StrictOption = False,
    json: JsonOption = False,
) -> None:
    """Fit s per model and backend, with interval and verdict."""
    with working("calibrating"):
        from calib.reporting.tables import coefficient_table
        from calib.workflow import calibrate

        result = calibrate(campaign, _options(matching, error_floor, strict, balance, form, reference, pooling))
    new = result.coefficients.save(out) if out is not None else False
    if json:
        print_json({"digest": result.coefficients.digest, "new": new, "coefficients": frame_rows(result.fit.table())})
        return
    print_table(coefficient_table(result.fit))
    print_findings(result.findings)
    if out is not None:
        print(f"{'Wrote' if new else 'Nothing new:'} {out}")


@app.command("report")
def report_command(
    campaign: CampaignArg = DEFAULT,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("reports"),
    matching: MatchingOption = None,
    error_floor: FloorOption = 0.02,
    balance: BalanceOption = "decode",
    form: FormOption = "log2",
    reference: ReferenceOption = "baseline",
    pooling: PoolingOption = "none",
    strict: StrictOption = False,
) -> None:
    """Write coefficient file and report, and print the Markdown report."""
    with working("calibrating"):
        from calib.reporting import render_markdown
        from calib.workflow import run

        result, written = run(
            campaign, out=out, options=_options(matching, error_floor, strict, balance, form, reference, pooling)
        )
    print(render_markdown(result.report_data))
    note(f"{'wrote' if written.new else 'nothing new:'} {written.folder}")


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


def _options(
    matching: str | None,
    error_floor: float,
    strict: bool,
    balance: str,
    form: str = "log2",
    reference: str = "baseline",
    pooling: str = "none",
) -> Options:
    from calib.residual import FORMS
    from calib.workflow import Options

    allowed = {
        "--matching": (matching, (None, "peak", "matched")),
        "--balance": (balance, ("decode", "mixed", "none")),
        "--form": (form, tuple(FORMS)),
        "--reference": (reference, ("baseline", "model")),
        "--pooling": (pooling, ("none", "partial")),
    }
    for option, (value, known) in allowed.items():
        if value not in known:
            names = ", ".join(f"'{k}'" for k in known if k)
            raise UsageError(f"must be one of {names}", field=option, value=value)
    return Options(
        matching=matching, form=form, error_floor=error_floor, balance=balance, strict=strict,  # type: ignore[arg-type]
        reference=reference, pooling=pooling,  # type: ignore[arg-type]
    )  # fmt: skip


def _gates(result: Result, gate_error: float | None, gate_refused: bool) -> None:
    refused = [s for s in result.fit.series if s.verdict == "REFUSED"]
    if gate_refused and refused:
        names = ", ".join(f"{s.key['model']} on {s.key['backend']}" for s in refused)
        raise GateFailedError(f"gate --gate-refused: the form is refused for {names}")
    if gate_error is None:
        return
    from calib.names import ONE_PP
    from calib.validation import PER_MODEL

    table = result.accuracy.summary
    for row in table[(table["approach"] == PER_MODEL) & (table["scheme"] == ONE_PP)].to_dict("records"):
        if not row["mean_abs_error_pp"] <= gate_error:  # also where nothing could be predicted
            raise GateFailedError(
                f"gate --gate-error: the left-out mean error of {row['backend']} is {row['mean_abs_error_pp']:.2f} pp, "
                f"over {gate_error:g} pp"
            )
