"""Commands: parse, call one use case, hand its result to ``report``."""
