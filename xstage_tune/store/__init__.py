"""The store: runs, launches, spans and fits in a database."""
