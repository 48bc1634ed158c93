# shellcheck shell=bash
# The virtual environment in .venv, made once and updated when pyproject.toml or constraints.txt changes.
# Sets: PYTHON, VENV_USABLE.

readonly VENV=$HERE/.venv
# Pins the packages of .venv: a newer release on the index does not change what the tasks and linters do.
readonly CONSTRAINTS=$HERE/bootstrap/constraints.txt

# usage: python::_fits INTERPRETER
python::_fits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2> /dev/null
}

# Sets PYTHON to an interpreter that can make the environment; returns 1 if there is none.
python::_find() {
    local name
    for name in python3 python3.13 python3.12 python3.11 python3.10 python3.9; do
        if PYTHON=$(command -v "$name") && python::_fits "$PYTHON"; then return; fi
    done
    PYTHON=''
    return 1
}

# An environment holds absolute paths: one that was moved, or whose Python was removed, is not usable.
python::_usable() {
    [[ -z ${VENV_USABLE:-} ]] || return 0
    [[ -f $VENV/made-at && $(< "$VENV/made-at") == "$VENV" ]] && "$VENV/bin/python" -S -c '' 2> /dev/null && VENV_USABLE=true
}

python::require() {
    python::_usable || python::_find \
        || packages::require 'python3-venv|python3' 'Python 3.9 or later with its venv module, which runs the tasks'
}

# usage: python::_stamp EXTRA
# Prints all that an installation depends on.
python::_stamp() {
    printf 'extra %s\n' "$1"
    cat "$HERE/pyproject.toml" "$CONSTRAINTS"
}

# Makes .venv and installs the project with the EXTRA of the task.
python::ready() {
    local -r stamp=$VENV/installed${EXTRA:+-$EXTRA}
    python::_usable || python::_make
    [[ ! -f $stamp || $(< "$stamp") != "$(python::_stamp "$EXTRA")" ]] || return 0
    $INSTALL || fail "--no-install: pip would install this project${EXTRA:+ with its extra $EXTRA} into $VENV"
    say "installing the project's Python packages${EXTRA:+ and those of its extra $EXTRA} into .venv"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$CONSTRAINTS" \
        --editable "$HERE${EXTRA:+[$EXTRA]}" \
        || fail "pip could not install the packages of pyproject.toml as pinned by bootstrap/constraints.txt; see its output above"
    python::_stamp "$EXTRA" > "$stamp"
}

python::_make() {
    $INSTALL || fail "--no-install: $VENV would be made and the project's packages installed into it"
    python::_find || fail "no Python 3.9 or later with venv and ensurepip on PATH, even after the installation"
    say "making .venv with $("$PYTHON" --version) of $PYTHON"
    "$PYTHON" -m venv --clear "$VENV"
    printf '%s\n' "$VENV" > "$VENV/made-at"
}
