"""What people read: the report as page, Markdown and JSON, its tables and its figures.

Imports `judging` and what lies below it; knows neither the emulator nor other tools.
Read first: `contents` (what a report is made from), then `page`.
"""

from typing import TYPE_CHECKING

from calib._exports import face

if TYPE_CHECKING:
    from calib.reporting.coefficient_tables import coefficient_table as coefficient_table
    from calib.reporting.comparison_page import (
        render_comparison_html as render_comparison_html,
        render_comparison_markdown as render_comparison_markdown,
    )
    from calib.reporting.contents import ReportData as ReportData, report_tables as report_tables
    from calib.reporting.document import render_json as render_json
    from calib.reporting.efficiency_figure import figure_bytes as figure_bytes
    from calib.reporting.efficiency_tables import decomposition_table as decomposition_table
    from calib.reporting.figure_output import figure_files as figure_files
    from calib.reporting.markdown import render_markdown as render_markdown
    from calib.reporting.page import render_html as render_html
    from calib.reporting.pictures import plot_efficiency as plot_efficiency, plot_stages as plot_stages
    from calib.reporting.plan_tables import plan_table as plan_table
    from calib.reporting.result_folder import (
        remove_torn as remove_torn,
        require_room as require_room,
        taken as taken,
        write_folder as write_folder,
    )
    from calib.reporting.run_summary import (
        finding_sentences as finding_sentences,
        refusals as refusals,
        summary_table as summary_table,
        verdict_paragraphs as verdict_paragraphs,
    )
    from calib.reporting.source_tables import quality_table as quality_table
    from calib.reporting.stage_figure import draw_stages as draw_stages
    from calib.reporting.table import (
        CONFIGURATION as CONFIGURATION,
        Column as Column,
        Table as Table,
        json_value as json_value,
    )
else:
    __getattr__, __dir__ = face(
        __name__,
        {
            "coefficient_tables": "coefficient_table",
            "comparison_page": "render_comparison_html render_comparison_markdown",
            "contents": "ReportData report_tables",
            "document": "render_json",
            "efficiency_figure": "figure_bytes",
            "efficiency_tables": "decomposition_table",
            "figure_output": "figure_files",
            "markdown": "render_markdown",
            "page": "render_html",
            "pictures": "plot_efficiency plot_stages",
            "plan_tables": "plan_table",
            "source_tables": "quality_table",
            "result_folder": "remove_torn require_room taken write_folder",
            "run_summary": "finding_sentences refusals summary_table verdict_paragraphs",
            "stage_figure": "draw_stages",
            "table": "CONFIGURATION Column Table json_value",
        },
    )
