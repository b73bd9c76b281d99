"""Sphinx configuration: ``sphinx-build -W docs build/docs``. Nothing is fetched, to build or to read it."""

from xstage_tune import __version__

project = "xstage-tune"
release = __version__
extensions = ["myst_parser"]
exclude_patterns = ["make"]
nitpicky = True  # a broken link or anchor is a warning, and -W makes it an error

myst_heading_anchors = 3
myst_links_external_new_tab = False

html_theme = "furo"
html_title = "xstage-tune"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["style"]
html_css_files = ["tables.css"]
