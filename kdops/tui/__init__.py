"""The live dashboard, `kdops tui`: pure samples and histories below, Textual on top, all I/O in threads."""
