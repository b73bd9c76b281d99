"""A process that does whatever the config says in place of measuring; plain Python, quick to begin."""

import json
import os
import pathlib
import subprocess
import sys
import time


def times(asked, first):
    return {"times": [first + asked["config"].get("size", 0)] * asked["repeats"], "correct": True}


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    asked = json.loads(line)
    what = asked["config"].get("what", "nothing") if "yardstick" not in asked else "yardstick"
    if what == "abort":
        os.abort()
    elif what == "exit":
        sys.stderr.write("out of memory\n")
        sys.exit(3)
    elif what == "hang":
        time.sleep(3600)
    elif what == "garbage":
        say("compiling...")
    elif what == "no-answer":
        say("[1, 2]")
    elif what == "unknown-key":
        say(json.dumps({**times(asked, 5), "time": 1}))
    elif what == "no-word":
        say(json.dumps({"times": [5.0]}))
    elif what == "nan":
        say('{"times": [NaN], "correct": true}')
    elif what == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    elif what == "endless-lines":
        say(json.dumps(times(asked, 5)))
        while True:
            say("more")
    elif what == "children":
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True, stdout=1, stdin=0
        )
        with pathlib.Path("children").open("a") as file:
            file.write(f"{child.pid}\n")
        os._exit(0)
    elif what == "wrong":
        say(json.dumps({"times": [1.0], "correct": "row 3 differs"}))
    elif what == "told":
        say(json.dumps({"error": "needs 300 KiB of shared memory", "fault": "unusable"}))
    else:
        say(json.dumps(times(asked, 9 if what == "yardstick" else 10)))
