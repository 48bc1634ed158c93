"""`python -m tests.pages`, with entrypoints/ in PYTHONPATH: writes the generated parts of docs/."""

from __future__ import annotations

import sys

from tests.pages import checks, faults, profiles, troubleshooting

for module in (checks, faults, profiles, troubleshooting):
    module.PAGE.write_text(module.updated(module.PAGE.read_text()))
    sys.stdout.write(f"{module.PAGE}\n")
