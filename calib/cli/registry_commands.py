"""Commands about coefficient files: show, compare, release, withdraw."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.cli.app import app
from calib.cli.options import JsonOption, RegistryOption
from calib.cli.output import note, print_json, print_table, say
from calib.errors import GateFailedError, OutputError, UsageError
from calib.files import SHORT, write_new

if TYPE_CHECKING:
    from calib.coefficients import CoefficientSet, Comparison

WhyOption = Annotated[str, typer.Option("--why", help="The reason, kept in the registry.")]


@app.command()
def show(
    file: Annotated[
        Path | None, typer.Argument(help="A coefficient file; the list of released ones if left out.")
    ] = None,
    registry: RegistryOption = None,
    json: JsonOption = False,
) -> None:
    """What a coefficient file covers, checked and readable; without a file, what is released."""
    from calib.cli.registry_tables import balance_rows, coefficient_rows, entry_rows, header, release_rows, standing
    from calib.coefficients import SHIPPED, CoefficientSet, Registry

    opened = Registry.open(registry or SHIPPED)
    if file is None:
        if json:
            print_json({"folder": str(opened.folder), "entries": opened.entries})
            return
        say(f"registry {opened.folder}: {len(opened.releases)} releases, {len(opened.current)} of them standing")
        print_table(release_rows(opened))
        print_table(entry_rows(opened))
        return
    loaded = CoefficientSet.load(file)
    if json:
        sys.stdout.write(loaded.to_json().decode())
        return
    say(header(loaded))
    say(standing(loaded, (opened, Registry.open(file.parent))))
    print_table(coefficient_rows(loaded))
    print_table(balance_rows(loaded))


@app.command("compare")
def compare_command(
    old: Annotated[str, typer.Argument(help="A coefficient file, or the digest of a released one.")],
    new: Annotated[str, typer.Argument(help="Another one.")],
    registry: RegistryOption = None,
    gate_z: Annotated[
        float | None,
        typer.Option(
            "--gate-z", help="Exit 1 where a parameter moved by more than this many combined standard errors."
        ),
    ] = None,
    gate_change: Annotated[
        float | None, typer.Option("--gate-change", help="Exit 1 where a prediction changed by more than this, in %.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write compare.html and compare.md into this folder as well.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """What moved between two coefficient files, by how many standard errors, and what it does to predictions."""
    from calib.cli.registry_tables import change_rows, moved_rows, prediction_rows
    from calib.coefficients import compare

    found = compare(_loaded(old, registry), _loaded(new, registry))
    if json:
        from dataclasses import asdict

        print_json(asdict(found) | {"largest_z": found.largest_z, "largest_change_pct": found.largest_change_pct})
    else:
        say(found.describe())
        for table in (moved_rows(found), change_rows(found), prediction_rows(found)):
            print_table(table)
    if out is not None:
        _write_comparison(found, out)
    if gate_z is not None and found.largest_z is not None and found.largest_z > gate_z:
        raise GateFailedError(
            f"gate --gate-z: a parameter moved by {found.largest_z:.1f} combined standard errors, over {gate_z:g}"
        )
    if gate_change is not None and found.largest_change_pct is not None and found.largest_change_pct > gate_change:
        raise GateFailedError(
            f"gate --gate-change: a prediction changed by {found.largest_change_pct:.1f} %, over {gate_change:g} %"
        )


def _write_comparison(found: Comparison, out: Path) -> None:
    """The comparison as a page and as Markdown; neither replaces a file of other content."""
    from calib.cli.registry_tables import change_rows, moved_rows, prediction_rows
    from calib.reporting import render_comparison_html, render_comparison_markdown

    tables = (moved_rows(found), change_rows(found), prediction_rows(found))
    for name, text in (
        ("compare.html", render_comparison_html(found, tables)),
        ("compare.md", render_comparison_markdown(found, tables)),
    ):
        data = text.encode("utf-8", "backslashreplace")
        out.mkdir(parents=True, exist_ok=True)
        if not write_new(out / name, data) and (out / name).read_bytes() != data:
            raise OutputError("holds another comparison", file=out / name, remedy="choose another folder with --out")
        note(f"wrote {out / name}")


@app.command("release")
def release_command(
    file: Annotated[Path, typer.Argument(help="The candidate: a coefficient file that `calib run` wrote.")],
    why: WhyOption,
    registry: RegistryOption = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            "--leave-out", help="A model (or backend, for its pool) that is REFUSED and shall stay so in the release."
        ),
    ] = None,
    max_error: Annotated[
        float, typer.Option("--max-error", help="Gate: mean error of left-out pp levels, in percentage points.")
    ] = 5.0,
    json: JsonOption = False,
) -> None:
    """Copy a candidate into a registry; refuses REFUSED coefficients and failing gates."""
    from calib.coefficients import CoefficientSet, Registry, release

    folder = _writable(registry)
    entry, comparison = release(
        CoefficientSet.load(file), folder, why=why, leave_out=tuple(leave_out or ()), max_error_pp=max_error
    )
    if json:
        print_json(entry)
        return
    for gate in entry.gates:
        say(f"passed: {gate.name} ({gate.found}; limit {gate.limit})")
    say(f"Released {Registry.open(folder).path_of(entry)} (digest {entry.digest[:SHORT]}) by {entry.by} at {entry.at}")
    if entry.left_out:
        say(f"released as refused: {', '.join(entry.left_out)}")
    if comparison is not None:
        say(f"supersedes {comparison.old[:SHORT]}; {comparison.describe()}")
    if entry.torn:
        note(f"set aside {len(entry.torn)} bytes of a torn last line of {folder}")


@app.command("withdraw")
def withdraw_command(
    digest: Annotated[str, typer.Argument(help="Digest of a released file, or its beginning.")],
    why: WhyOption,
    registry: RegistryOption = None,
) -> None:
    """Withdraw a released file: loading it becomes an error that says why."""
    from calib.coefficients import withdraw

    entry = withdraw(_writable(registry), digest, why)
    say(f"Withdrew {entry.file} (digest {entry.digest[:SHORT]}) by {entry.by} at {entry.at}: {entry.why}")


def _writable(registry: Path | None) -> Path:
    if registry is None:
        raise UsageError(
            "is needed to write", field="--registry", remedy="name the folder of your registry, or set CALIB_REGISTRY"
        )
    return registry


def _loaded(name: str, registry: Path | None) -> CoefficientSet:
    """A file that exists, else the released one of that digest."""
    from calib.coefficients import SHIPPED, CoefficientSet, Registry

    if Path(name).exists():
        return CoefficientSet.load(name)
    opened = Registry.open(registry or SHIPPED)
    if len(name) >= 4 and all(c in "0123456789abcdef" for c in name):
        return opened.load(opened.find(name))
    return CoefficientSet.load(name)
