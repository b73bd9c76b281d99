"""Reports: tables, plots, HTML, traces."""
