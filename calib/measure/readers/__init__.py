"""One module a tool, each with a pure `parse_*`; `formats` knows them by content, `quantities` says what a figure means."""
