"""Stand-in for verl's trainer: uses ``stub.mib`` of memory, logs ``stub.steps``, sleeps ``stub.seconds`` and exits with
``stub.code``."""

import json
import os
import sys
import time
from pathlib import Path

settings = dict(argument.lstrip("+").split("=", 1) for argument in sys.argv[1:])
print("stub training runs", flush=True)
memory = b"1" * (int(settings["stub.mib"]) << 20)
for step in range(1, int(settings["stub.steps"]) + 1):
    time.sleep(1)  # slower than the supervisor polls
    with Path(os.environ["VERL_FILE_LOGGER_PATH"]).open("a") as log:
        log.write(json.dumps({"step": step, "data": {}}) + "\n")
time.sleep(float(settings["stub.seconds"]))
print("stub training ends", flush=True)
sys.exit(int(settings["stub.code"]))
