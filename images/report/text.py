"""Formats a build report: a few lines, a page of text, a page of HTML."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from images.contents.layer_sizes import mb
from images.report.report import Report

TEMPLATE = "report.html.j2"


def summary(report: Report) -> str:
    """A few lines for the terminal: what ran and why, and what it weighs."""
    lines = [_headline(report)]
    for step in sorted(report.ran, key=lambda step: -step.seconds)[:5]:
        lines.append(f"  {step.seconds:6.1f} s  {mb(step.size):>9}  {_short(step.text, 48)}  ({step.cause})")
    return "\n".join(lines)


def full(report: Report) -> str:
    """The whole report as text."""
    lines = [
        _headline(report),
        f"image {report.image}",
        f"base  {report.base}, {mb(report.base_size)}",
        f"by    {report.engine}",
    ]
    lines += ["", "  seconds      size  step"]
    for step in report.steps:
        time = "  cached" if step.cached else f"{step.seconds:8.1f}"
        lines.append(f" {time} {mb(step.size):>9}  {step.stage}: {_short(step.text, 110)}")
        lines += [f"{'':20} ran: {step.cause}"] if step.cause else []
    lines += [f" {report.other_s:8.1f}            context and export", "", "largest places above the base"]
    lines += [f" {mb(size):>9}  {path}" for path, size in report.places] or [
        " not to be read: the engine keeps its storage to itself"
    ]
    return "\n".join(lines)


def page(report: Report) -> str:
    """The same as HTML."""
    return template().render(report=report)


@lru_cache(maxsize=1)
def template() -> Template:
    """The page's template, compiled once: that takes longer than all else that a report does."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, autoescape=True
    )
    environment.filters["mb"] = mb
    return environment.get_template(TEMPLATE)


def _headline(report: Report) -> str:
    change = "" if report.before is None else f", {(report.size - report.before) / 1e6:+.1f} MB since the last build"
    count = len([step for step in report.steps if not step.text.startswith("FROM ")])
    return (
        f"{report.name}: {len(report.ran)} of {count} steps ran in {report.seconds:.1f} s; "
        f"{mb(report.size)}, {mb(report.size - report.base_size)} over its base{change}"
    )


def _short(text: str, width: int) -> str:
    """The part of an instruction that tells it from others, in ``width`` characters."""
    text = re.sub(r"--mount=\S+ ", "", text)
    return text if len(text) <= width else f"{text[: width - 1]}…"
