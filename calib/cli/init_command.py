"""`calib init`: a first campaign.toml for a folder of results."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from calib.cli.app import app
from calib.cli.options import JsonOption
from calib.cli.output import note, print_json, print_table, working

if TYPE_CHECKING:
    from calib.measure import Draft


@app.command("init")
def init_command(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder of results, without a campaign.toml.")],
    json: JsonOption = False,
) -> None:
    """Write a commented campaign.toml for a folder of results, and say what could be inferred and what could not."""
    with working("reading results"):
        from calib.measure import init_campaign

        draft = init_campaign(folder)
    if json:
        print_json(
            {
                "file": str(draft.path), "runs": draft.results, "inferred": [asdict(x) for x in draft.inferred],
                "missing": [asdict(x) | {"state": x.words} for x in draft.missing], "remarks": draft.remarks,
            }
        )  # fmt: skip
        return
    _print(draft)


def _print(draft: Draft) -> None:
    from calib.errors import printable
    from calib.reporting import Column, Table

    columns = (
        Column("field", "field"),
        Column("value", "value"),
        Column("place", "stands in"),
        Column("source", "learnt from"),
    )
    rows = tuple(
        {"field": x.field, "value": _shown(x.value), "place": x.place, "source": x.source} for x in draft.inferred
    )
    print_table(
        Table("inferred", f"Inferred from {draft.results} runs", "", columns, rows, "Nothing could be inferred.")
    )
    asked = (Column("field", "field"), Column("place", "state it in"), Column("words", "state this"))
    rows = tuple({"field": x.field, "place": x.place, "words": x.words} for x in draft.missing)
    if rows:
        print_table(Table("missing", "Could not be inferred", "", asked, rows))
    for remark in draft.remarks:
        note(printable(remark))
    print(f"\nWrote {printable(str(draft.path))}")
    then = "state the fields above in it, then run" if rows else "next:"
    print(f"  {then} `calib ingest {printable(str(draft.path.parent))}`")


def _shown(value: object) -> str:
    if not isinstance(value, list):
        return str(value)
    return ", ".join(map(str, value[:6])) + (f" and {len(value) - 6} more" if len(value) > 6 else "")
