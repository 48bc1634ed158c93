"""Stands in for verl's trainer: takes ``stub.mib`` of memory, logs ``stub.steps``, lasts ``stub.seconds`` more and ends
with ``stub.code``."""

import json
import os
import sys
import time
from pathlib import Path

given = dict(argument.lstrip("+").split("=", 1) for argument in sys.argv[1:])
print("stub training runs", flush=True)
taken = b"1" * (int(given["stub.mib"]) << 20)
for step in range(1, int(given["stub.steps"]) + 1):
    time.sleep(1)  # slower than the supervisor looks
    with Path(os.environ["VERL_FILE_LOGGER_PATH"]).open("a") as log:
        log.write(json.dumps({"step": step, "data": {}}) + "\n")
time.sleep(float(given["stub.seconds"]))
print("stub training ends", flush=True)
sys.exit(int(given["stub.code"]))
