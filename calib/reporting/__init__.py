"""The report: the same tables as HTML, Markdown and JSON, and the figures.

The package is called ``reporting``, since ``calib.report`` is the function.
"""

from calib.reporting.render import figure_files, render_html, render_json, render_markdown
from calib.reporting.table import Table
from calib.reporting.tables import ReportData, report_tables

__all__ = ["ReportData", "Table", "figure_files", "render_html", "render_json", "render_markdown", "report_tables"]
