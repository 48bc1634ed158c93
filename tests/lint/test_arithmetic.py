"""Shell arithmetic uses only values that were matched as digits or computed: any other may contain code."""

from __future__ import annotations

import pytest

from tests.lint.arithmetic import Shell
from tests.lint.test_sources import CHECKOUT, is_shell, sources

NODE, LAUNCH = "slurm/node.sh _main", "slurm/lib/launch/main.sh launch::_export_settings"
# Values that one function matches before others compute with them: launch.sh its own, and every node those of its
# environment.
MATCHED = {
    "SLURM_NODEID": [NODE],
    "SLURM_MEM_PER_NODE": [NODE],
    "SLURM_MEM_PER_CPU": [NODE],
    "SLURM_CPUS_ON_NODE": [NODE],
    "SLURM_JOB_ID": [NODE, LAUNCH],
    "SLURM_JOB_END_TIME": [LAUNCH],
    "SLURM_RESTART_COUNT": [LAUNCH],
    "VERLJOB_SILENCE_S": [LAUNCH],
    "VERLJOB_STALL_S": [LAUNCH],
    "VERLJOB_PULLS": [NODE, LAUNCH],
    "VERLJOB_PULL_TIMEOUT_S": [NODE, LAUNCH],
    "VERLJOB_PORTS": ["slurm/lib/common/ports.sh ports::read_range"],  # which is called before each reservation
    "VERLJOB_ATTEMPTS": ["slurm/lib/launch/requeue.sh requeue::begin"],
    "VERLJOB_SAVE_TIMEOUT_S": ["slurm/lib/launch/requeue.sh requeue::begin"],
    "SBATCH_CPUS_PER_TASK": ["slurm/lib/launch/allocation.sh allocation::simulate"],
}


def test_the_shell_computes_only_with_numbers() -> None:
    files = {str(path.relative_to(CHECKOUT)): path.read_text() for path in sources() if is_shell(path)}

    assert len(files) > 50
    assert Shell(files, MATCHED).findings() == []


def found(text: str, **elsewhere: list[str]) -> set[str]:
    return {finding.name for finding in Shell({"slurm/a.sh": text}, elsewhere).findings()}


# Mistakes that were found in review.
PORTS = """
ports::_is_free() {
    local port file name
    for file in "$VERLJOB_PORTS_FOLDER"/[0-9]*-[0-9]*; do
        name=${file##*/}
        ((${name#*-} < $1 || ${name%-*} > $2)) || ! ports::_is_held "$file" || return 1
    done
}
ports::reserve() { ports::_is_free 1 2; }
"""
REPORTS = """
srun::_read_reports() {
    local id code
    while read -t 0 -u 4; do
        read -r -u 4 id code
        ((code != 0)) || STEP_PATIENCE=$STEP_SUCCESS_PATIENCE
    done
}
"""
SUBSCRIPT = """
f() {
    local fields
    IFS=, read -r -a fields <<< "$2"
    local -r id=${fields[1]}
    NODES[id]=1
}
"""


@pytest.mark.parametrize(("text", "names"), [(PORTS, {"name"}), (REPORTS, {"code"}), (SUBSCRIPT, {"id"})])
def test_known_mistakes_are_found(text: str, names: set[str]) -> None:
    assert found(text) == names


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("((VERLJOB_X > 1))", "VERLJOB_X"),
        ("echo $((${VERLJOB_X:-5} + 1))", "VERLJOB_X"),
        ("VERLJOB_X=${VERLJOB_X:-5}; ((VERLJOB_X))", "VERLJOB_X"),
        ("[[ $VERLJOB_X -gt 3 ]]", "VERLJOB_X"),
        ("echo ${text:VERLJOB_X:2}", "VERLJOB_X"),
        ('echo "${@:VERLJOB_X}"', "VERLJOB_X"),
        ("list[VERLJOB_X]=1", "VERLJOB_X"),
        ("echo ${list[$VERLJOB_X]}", "VERLJOB_X"),
        ("for ((n = 0; n < VERLJOB_X; n++)); do :; done", "VERLJOB_X"),
        ("(($(< file) > 1))", '$(< file)'),
        ("while read -r x _; do ((x)); done < file", "x"),
        ("mapfile -t x < file; ((x[0]))", "x"),
        ("for x in $WORDS; do ((x)); done", "x"),
        ("printf -v x %s \"$1\"; ((x))", "x"),
        ("x=$(cat file); ((x))", "x"),
        ("[[ $x =~ ([0-9]+)-(.*) ]]; ((BASH_REMATCH[2]))", "BASH_REMATCH[2]"),
        ("[[ $x =~ ^[0-9]+ ]] && ((x))", "x"),
        ("((x)); [[ $x =~ ^[0-9]+$ ]]", "x"),
        ("((SLURM_X)); SLURM_X=1 srun x", "SLURM_X"),
        ("echo \"# $((VERLJOB_X))\"", "VERLJOB_X"),
    ],
)  # fmt: skip
def test_unmatched_values_are_found(line: str, name: str) -> None:
    assert name in found(f"f() {{\n    {line}\n}}\n")
    assert name in found(f"{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "((SECONDS > 3 && $# > 1))",
        "x=${#list[@]}; ((x))",
        "x=$((SECONDS + 4)); ((x > 3))",
        "[[ $VERLJOB_X =~ ^[1-9][0-9]*$ ]] && ((VERLJOB_X))",
        "[[ ${VERLJOB_X:-16} =~ ^(0|[1-9][0-9]{0,3})$ ]] || exit; ((VERLJOB_X))",
        "for name in VERLJOB_X VERLJOB_Y; do [[ ${!name} =~ ^[0-9]+$ ]] || exit; done; ((VERLJOB_X + VERLJOB_Y))",
        "require_numbers VERLJOB_X VERLJOB_Y; ((VERLJOB_X + VERLJOB_Y))",
        "[[ $x =~ ([0-9]+)-(.*) ]]; ((BASH_REMATCH[1]))",
        "for x in 1 2 3; do ((x)); done",
        'for x in "${!list[@]}"; do ((x)); done',
        "printf -v now '%(%s)T' -1; ((now))",
        'x=$(stat -c %Y -- "$file"); ((x))',
        "declare -A named=(); echo ${named[$key]} ${named[other]}; named[$key]=1",
        "echo ${text:1:3} ${x:-5} ${x:+y} ${list[@]:1} ${list[*]}  # ((VERLJOB_X))",
        "# ((VERLJOB_X))",
    ],
)
def test_numbers_and_matched_values_pass(line: str) -> None:
    assert found(f"{line}\n") == set()


def test_arguments_of_a_function_are_traced_to_its_callers() -> None:
    text = "f() {\n    (($2 > 1))\n}\n"

    assert found(f'{text}f x 3\nf "$y" $((4 + 5))\n') == set()
    assert found(f'{text}f x 3\nf x "$y"\n') == {"2"}
    assert found(text) == {"2"}


def test_a_value_declared_as_matched_elsewhere_must_be_matched() -> None:
    text = "g() {\n    [[ $VERLJOB_X =~ ^[0-9]+$ ]] || exit\n}\nf() {\n    ((VERLJOB_X))\n}\n"

    assert found(text, VERLJOB_X=["slurm/a.sh g"]) == set()
    assert found(text, VERLJOB_X=["slurm/a.sh f"]) == {"VERLJOB_X"}
    assert found(text) == {"VERLJOB_X"}
