"""What profiles of all families share: the request, a kept run, its rebuilding from the store."""
