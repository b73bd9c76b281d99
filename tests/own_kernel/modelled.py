"""A kernel of known times: rounds of a gap and a burst, or a gap and the drain at R of ``h200-host``."""


def bursts(asked):
    config = asked["config"]
    return [
        {
            "burst_bytes": config["burst_bytes"],
            "producers": config["producers"],
            "gap_ns": 100.0 * config["burst_bytes"] / 1024,
            "rounds": -(-asked["tokens"] * 1024 // (config["burst_bytes"] * config["producers"])),
        }
    ]


def time_ns(config, tokens):
    (phase,) = bursts({"config": config, "tokens": tokens})
    total = phase["burst_bytes"] * phase["producers"] * phase["rounds"]
    return 1.02 * max(phase["rounds"] * (phase["gap_ns"] + 1000.0), phase["gap_ns"] + total / 52.7)


def measure(asked):
    time_us = time_ns(asked["config"], asked["keys"]["tokens"]) / 1e3
    return {"times": [time_us] * asked["repeats"], "correct": True, "counters": {"bank_conflicts": 7}}


def broken(asked):
    return [{"burst_byte": asked["tokens"]}]
