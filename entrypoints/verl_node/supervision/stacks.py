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

_EACH_S = 10.0
TOGETHER_S = 45.0
_COMMAND_LENGTH = 300
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
# Ray's own helpers and workers without work are seldom where it hangs: they come last.
_SELDOM = re.compile(
    r"ray start --|ray::(IDLE|DashboardAgent|RuntimeEnvAgent)|ray-dashboard-|ray/(dashboard|autoscaler)/"
    r"|ray/_private/(log_monitor|runtime_env)|multiprocessing\.(forkserver|resource_tracker)"
)


async def write(path: Path, env: Mapping[str, str]) -> str:
    """Write the stack of every Python process below this one to ``path``; return in words how many, or why not.

    py-spy reads them from outside, which also works for a process that hangs in C; it comes with ray[default].
    """
    spy = shutil.which("py-spy", path=env.get("PATH"))
    deadline = Deadline(TOGETHER_S)
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
    why = "" if read or not processes else f" ({_why_not(spy)})"
    return f"stacks of {read} of {len(processes)} Python processes: {path}{why}"


def _processes() -> list[tuple[int, str]]:
    """Return pid and command line of the Python processes below this one, those of the training first."""
    found = []
    for pid in process_tree.descendants():
        try:
            if not Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python"):
                continue
            command = (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # ended meanwhile
            continue
        found.append((pid, masking.beginning(command.strip(), _COMMAND_LENGTH)))
    return sorted(found, key=lambda process: (bool(_SELDOM.search(process[1])), process[0]))


def _state(pid: int) -> str:
    """Return what the kernel says it does: R runs, S waits, D waits for a device or a file system, T is stopped."""
    folder = Path("/proc") / str(pid)
    try:
        state = next(line for line in (folder / "status").read_text().split("\n") if line.startswith("State:"))
        return f"{state}, in {(folder / 'wchan').read_text() or 'no kernel function'}"
    except OSError as error:
        return f"State: {error.strerror}"


async def _dump(spy: str, pid: int, env: Mapping[str, str], deadline: Deadline) -> list[str]:
    if deadline.left_s() == 0:
        return [f"not looked at: the {TOGETHER_S:.0f} s for this node were over"]
    lines: list[str] = []
    # --nonblocking: one that is stopped, or waits for a device, could not be paused.
    process = await Process.start(
        "py-spy", [spy, "dump", "--nonblocking", "--pid", str(pid)], env, on_line=lines.append
    )
    try:
        await within(Deadline(min(_EACH_S, deadline.left_s())), process.ended())
    except asyncio.TimeoutError:
        process.kill()
        await asyncio.wait({asyncio.ensure_future(process.ended())}, timeout=1)
        lines.append(f"py-spy gave no answer in {_EACH_S:.0f} s")
    return lines


def _why_not(spy: str | None) -> str:
    if spy is None:
        return "py-spy is not installed: it comes with ray[default]"
    scope = _PTRACE_SCOPE.read_text().strip() if _PTRACE_SCOPE.exists() else "absent"
    return f"py-spy may not read them: {_PTRACE_SCOPE} is {scope}, 0 is wanted"
