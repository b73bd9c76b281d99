"""Tables, plots, HTML pages and traces of results: shows what others computed."""
