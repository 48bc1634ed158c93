"""Prefixes of log lines: process, host, time."""

from __future__ import annotations

import re
import time
from datetime import datetime

# Prefixes: Ray's "(Worker pid=1, ip=10.0.0.2)", torch's "[rank0]:", srun --label's "0: ", torchx's
# "job.train/0 [default0]:", mpirun's "[1,0]<stderr>:", pdsh's address, vLLM's "ERROR 09-03 11:03:37 [core.py:712]",
# SGLang's "[2026-05-09 08:12:03 TP0]", logging's "2026-05-09 08:12:03,1 - name - INFO - ", a time,
# also in Chinese brackets; uvicorn's "ERROR:    ".
_PREFIX = re.compile(
    rb"^(?:\s*(?:\x1b\[[\d;]*m|\([^()]{0,80}\bpid=\w+[^()]{0,60}\)|\[(?:rank|default|:)?\d+\]:|\(raylet\)|\d{1,4}: "
    rb"|\xe3\x80\x90[\d:. -]+\xe3\x80\x91"
    rb"|[A-Za-z][\w.-]{0,80}/\d{1,4} (?=\[)|\[\d+,\d+\]<std(?:err|out)>: ?|\d+\.\d+\.\d+\.\d+: "
    rb"|(?:ERROR|INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]+:\d+\]|ERROR:(?:[\w.]+:| {4})"
    rb"|\[\d{4}-\d\d-\d\d[T ][\d:.,]+(?: [A-Z]+\d+)*\]|\d{4}-\d\d-\d\d[T ][\d:.,]+ - (?:[\w.]+ - )?\[?[A-Z]+\]? - "
    rb"|\d{4}-\d\d-\d\d[T ][\d:.,]+Z? ?(?:\| \w+ \| \w+ \| )?))*"
)
_RANK = re.compile(rb"^(?:\x1b\[[\d;]*m)*(?:\([^()]{0,80}\bpid=\w+[^()]{0,60}\)|\[rank\d+\]:|\d{1,4}: )")
_HOSTS = (
    re.compile(rb"\bip=(\d+\.\d+\.\d+\.\d+|[\da-f:]{4,39})\b"),
    re.compile(rb"^(?:srun|slurmstepd): error: ([\w.-]+): task"),
    re.compile(rb"(?:JOB|STEP) \S+ (?:STEPD TERMINATED )?ON (\S+) "),
    re.compile(rb"^([A-Za-z][\w.-]*):\d+:\d+ \[\d+\] "),
    re.compile(rb"\(IP: ([\d.]+)|\bIP: (\d+\.\d+\.\d+\.\d+)\)"),
)
_TIMES = (
    (re.compile(rb"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)"), "%Y-%m-%d %H:%M:%S"),
    (re.compile(rb"\[[EWIF](\d{4} \d\d:\d\d:\d\d)\.\d+ "), "%m%d %H:%M:%S"),  # torch, glog
    (re.compile(rb"\b(?:ERROR|INFO|WARNING) (\d\d-\d\d \d\d:\d\d:\d\d)\b"), "%m-%d %H:%M:%S"),  # vLLM
)


def without_prefix(line: bytes) -> bytes:
    """Return the line without the prefixes of launchers and loggers."""
    found = _PREFIX.match(line)
    rest = line[found.end() :] if found else line
    return rest[1:] if found and found.end() and rest.startswith(b" ") else rest


def writer(line: bytes) -> bytes:
    """Return the part of the prefix that names the process, empty without one."""
    found = _RANK.match(line)
    return found[0] if found else b""


def host(line: bytes) -> str:
    """Return the host or address in the line, empty without one."""
    for pattern in _HOSTS:
        found = pattern.search(line)
        if found:
            return next(group for group in found.groups() if group).decode("utf-8", "replace")
    return ""


def last_time(text: bytes) -> float | None:
    """Return the last timestamp of the text in epoch seconds; None without one.

    Formats without a year get the current one; they are only compared with each other.
    """
    for pattern, form in _TIMES:
        found = pattern.findall(text)
        if found:
            text_of_time = found[-1].decode().replace("T", " ")
            try:
                moment = datetime.strptime(text_of_time, form)
            except ValueError:  # other digits in the same format
                continue
            year = moment.year if "%Y" in form else time.gmtime().tm_year
            return moment.replace(year=year).timestamp()
    return None
