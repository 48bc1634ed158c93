# shellcheck shell=bash
# result.json of a job whose head did not get to speak for it. See docs/flow.md.

# usage: result::_json TEXT
result::_json() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//[[:cntrl:]]/ }
    printf '"%s"' "$text"
}

# usage: result::_phases FILE
# Prints the seconds of the phases in the head's result.json; an empty object where it wrote none.
result::_phases() {
    local text=''
    [[ ! -r $1 ]] || text=$(< "$1")
    if [[ $text =~ \"phases\":[[:space:]]*(\{[^\}]*\}) ]]; then printf '%s' "${BASH_REMATCH[1]}"; else printf '{}'; fi
}

# usage: result::write FILE ATTEMPT NODE...
# Writes it of VERDICT; keeps the phases that the head wrote.
result::write() {
    local -r file=$1 attempt=$2
    local key node comma=''
    local phases
    phases=$(result::_phases "$file")
    shift 2
    {
        printf '{"code": %d, "attempt": %d' "${VERDICT[code]}" "$attempt"
        for key in stage host cause fix; do printf ', "%s": ' "$key"; result::_json "${VERDICT[$key]}"; done
        printf ', "phases": %s, "nodes": [' "$phases"
        for node in "$@"; do printf '%s' "$comma"; result::_json "$node"; comma=', '; done
        printf ']}\n'
    } > "$file.new"
    mv -f -- "$file.new" "$file"
}
