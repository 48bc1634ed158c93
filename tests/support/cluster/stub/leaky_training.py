"""Stands in for a trainer that says all it knows: its environment, here and in a Ray worker, and the job's token.

It goes on until the file ``stub.until`` is there, and then fails with a secret in its last words.
"""

import os
import sys
import time
from pathlib import Path

import ray

given = dict(argument.lstrip("+").split("=", 1) for argument in sys.argv[1:])


def tell() -> None:
    """Print the environment as one line, and its values one a line."""
    print("knows", dict(os.environ), flush=True)
    for name, value in os.environ.items():
        print(name, value, flush=True)


tell()
print("token", Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text(), flush=True)
ray.init()
ray.get(ray.remote(tell).remote())
print("leaky training runs", flush=True)
while not Path(given["stub.until"]).exists():
    time.sleep(0.2)
sys.exit(f"fails as {os.environ['HF_TOKEN']}")
