"""Stand-in for a trainer that prints all secrets: its environment, that of a Ray worker, and the job's token.

It runs until the file ``stub.until`` exists, and then fails with a secret in its last line.
"""

import os
import sys
import time
from pathlib import Path

import ray

settings = dict(argument.lstrip("+").split("=", 1) for argument in sys.argv[1:])


def print_environment() -> None:
    """Print the environment in one line, then one variable a line."""
    print("knows", dict(os.environ), flush=True)
    for name, value in os.environ.items():
        print(name, value, flush=True)


print_environment()
print("token", Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text(), flush=True)
ray.init()
ray.get(ray.remote(print_environment).remote())
print("leaky training runs", flush=True)
while not Path(settings["stub.until"]).exists():
    time.sleep(0.2)
sys.exit(f"fails as {os.environ['HF_TOKEN']}")
