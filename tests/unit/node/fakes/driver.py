"""Stands in for verl_node.cluster: reports every node alive, but for those in FAKE_DEAD."""

import json
import os
import signal
import sys

nodes = [value for flag, value in zip(sys.argv, sys.argv[1:]) if flag == "--node"]
gpus = int(sys.argv[sys.argv.index("--gpus") + 1])
alive = [node for node in nodes if node not in os.environ.get("FAKE_DEAD", "").split(",")]
seen = [{"address": node, "gpus": gpus, "cpus": 4} for node in alive]
print(json.dumps({"kind": "alive", "addresses": alive, "nodes": seen}), flush=True)
if alive != nodes:
    signal.pause()
print(json.dumps({"kind": "whole", "nodes": seen}), flush=True)
tasks = [{"address": node, "host": node, "python": "3", "pid": 1, "masks": {}} for node in nodes]
print(json.dumps({"kind": "tasks", "nodes": tasks}), flush=True)
