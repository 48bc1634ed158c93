"""Stands in for verl_node.prepare, with its reports; FAKE_PREPARE=fail has no model."""

import json
import os
import sys
import time


def report(phase, event, **more):
    print(json.dumps({"time": time.time(), "phase": phase, "event": event, **more}), flush=True)


report("data", "begin")
report("data", "end", seconds=0.25, message="made")
if os.environ.get("FAKE_PREPARE") == "fail":
    cause = {"code": 66, "cause": "No such model.", "fix": "Set VERLJOB_MODEL."}
    report("model", "error", message="No such model. Set VERLJOB_MODEL.", **cause)
    sys.exit(66)
report("model", "begin")
report("model", "end", seconds=0.5, message="whole")
