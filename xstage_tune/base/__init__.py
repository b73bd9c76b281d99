"""What every room shares: errors, files, units and number format, JSON, spans and their chunks."""
