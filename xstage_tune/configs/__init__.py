"""Kernel configs: schemas, files, the budgets they must fit, and the choices that a search has to beat."""
