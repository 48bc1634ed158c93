"""Every rule matches the real failure in its excerpt, and has complete fields."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from verl_node.explain import explain, rules
from verl_node.explain.logs import scan
from verl_node.explain.rules import LEVELS, Rule

from tests.support.paths import CHECKOUT

CLASSES = {each.name for each in rules.load_classes()} - set(rules.OTHER_CLASSES)
TABLE = rules.load()
ENDED = "srun: error: Exited with exit code 1\n"
"""A warning counts only in a job that failed."""


@pytest.mark.parametrize("rule", TABLE, ids=lambda rule: rule.id)
def test_rule_explains_its_excerpt(rule: Rule, tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(rule.excerpt + (ENDED if rule.level == "warning" else ""))

    explanation = explain([log])

    assert (explanation.rule, explanation.kind) == (rule.id, rule.kind)
    assert explanation.line in rule.excerpt
    assert explanation.file == str(log)
    assert explanation.cause
    assert explanation.fix
    assert "{" not in explanation.cause + explanation.fix.replace("={", "")


@pytest.mark.parametrize("rule", TABLE, ids=lambda rule: rule.id)
def test_rule_has_valid_fields(rule: Rule) -> None:
    assert rule.kind in CLASSES
    assert rule.level in LEVELS
    assert re.match(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+$|own run, |a public log", rule.source)
    assert any(reference.startswith("https://") for reference in rule.references)
    for page in (reference for reference in rule.references[1:] if reference.startswith("docs/")):
        assert (CHECKOUT / page).is_file()


@pytest.mark.parametrize("rule", TABLE, ids=lambda rule: rule.id)
def test_each_literal_has_a_lookup_word(rule: Rule) -> None:
    for literal in rule.literals:
        assert len(scan.key(literal)) >= 2


def test_every_class_has_a_rule_and_rule_ids_are_unique() -> None:
    assert {rule.kind for rule in TABLE} == CLASSES
    assert len({rule.id for rule in TABLE}) == len(TABLE)
