"""Stands in for verl's trainer: says that it runs, lasts ``stub.seconds`` and ends with ``stub.code``."""

import sys
import time

given = dict(argument.lstrip("+").split("=", 1) for argument in sys.argv[1:])
print("stub training runs", flush=True)
time.sleep(float(given["stub.seconds"]))
print("stub training ends", flush=True)
sys.exit(int(given["stub.code"]))
