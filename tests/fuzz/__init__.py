"""Fuzzers: inputs that nobody meant to write, made from a seed, and what must hold whatever comes.

``python -m tests.fuzz --minutes 30`` runs them for long; ``test_short.py`` for seconds.
"""
