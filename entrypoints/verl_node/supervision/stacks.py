"""Stack traces of a node's Python processes, to find where a training hangs."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from verl_node.reporting import files, masking
from verl_node.supervision import process_tree
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, within

_PROCESS_S = 10.0
TOTAL_S = 45.0
_COMMAND_LENGTH = 300
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
# Ray's helpers and idle workers are seldom the cause of a hang: they come last.
_HELPERS = re.compile(
    r"ray start --|ray::(IDLE|DashboardAgent|RuntimeEnvAgent)|ray-dashboard-|ray/(dashboard|autoscaler)/"
    r"|ray/_private/(log_monitor|runtime_env)|multiprocessing\.(forkserver|resource_tracker)"
)


async def write(path: Path, env: Mapping[str, str]) -> str:
    """Write the stack of every Python descendant to ``path``; return a text with number and place, or the problem.

    py-spy reads them from outside, also of a process that hangs in C; ray[default] installs it.
    """
    spy = shutil.which("py-spy", path=env.get("PATH"))
    deadline = Deadline(TOTAL_S)
    parts, read = [], 0
    processes = _processes()
    for pid, command in processes:
        stack = ["py-spy is not on PATH"] if spy is None else await _dump(spy, pid, env, deadline)
        read += any("Thread" in line for line in stack)
        parts.append("\n".join([f"== {pid} {command}", _state(pid), *stack, ""]))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, masking.masked("\n".join(parts)))
    except OSError as error:
        return f"{path} could not be written: {error.strerror}"
    problem = "" if read or not processes else f" ({_problem(spy)})"
    return f"stacks of {read} of {len(processes)} Python processes: {path}{problem}"


def _processes() -> list[tuple[int, str]]:
    """Return PID and command line of the Python descendants, those of the training first."""
    found = []
    for pid in process_tree.descendants():
        try:
            if not Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python"):
                continue
            command = (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        found.append((pid, masking.beginning(command.strip(), _COMMAND_LENGTH)))
    return sorted(found, key=lambda process: (bool(_HELPERS.search(process[1])), process[0]))


def _state(pid: int) -> str:
    """Return state and kernel function of a process: R runs, S waits, D waits for a device or file, T is stopped."""
    folder = Path("/proc") / str(pid)
    try:
        state = next(line for line in (folder / "status").read_text().split("\n") if line.startswith("State:"))
        return f"{state}, in {(folder / 'wchan').read_text() or 'no kernel function'}"
    except OSError as error:
        return f"State: {error.strerror}"


async def _dump(spy: str, pid: int, env: Mapping[str, str], deadline: Deadline) -> list[str]:
    if deadline.left_s() == 0:
        return [f"not read: the {TOTAL_S:.0f} s for this node are over"]
    lines: list[str] = []
    # --nonblocking: a process that is stopped, or waits for a device, cannot be paused.
    process = await Process.start([spy, "dump", "--nonblocking", "--pid", str(pid)], env, on_line=lines.append)
    try:
        await within(Deadline(min(_PROCESS_S, deadline.left_s())), process.ended())
    except asyncio.TimeoutError:
        process.kill()
        await asyncio.wait({asyncio.ensure_future(process.ended())}, timeout=1)
        lines.append(f"py-spy did not answer in {_PROCESS_S:.0f} s")
    return lines


def _problem(spy: str | None) -> str:
    if spy is None:
        return "py-spy is not installed: ray[default] installs it"
    scope = _PTRACE_SCOPE.read_text().strip() if _PTRACE_SCOPE.exists() else "absent"
    return f"py-spy may not read them: {_PTRACE_SCOPE} is {scope}, it needs 0"
