# shellcheck shell=bash
# Copies Ray's logs to the run directory: the end of each, without secrets.

readonly LOGS_FILE_BYTES=$((1024 * 1024)) LOGS_BYTES=$((64 * 1024 * 1024)) LOGS_TIMEOUT_S=30

# usage: ray_logs::keep RAY_FOLDER TARGET
# Bounded in bytes and in time: after TERM the whole node has 5 s.
ray_logs::keep() {
    local file size kept=0 timeout_s=$LOGS_TIMEOUT_S
    local -r began=$SECONDS
    [[ -z $ENDING ]] || timeout_s=1
    for file in "$1"/session_[0-9]*/logs/*.{log,err,out}; do
        [[ -s $file && ! -L $file ]] || continue
        if ((kept >= LOGS_BYTES || SECONDS - began > timeout_s)); then
            log::warn "not all of Ray's logs were kept"
            return 0
        fi
        mkdir -p -- "$2"
        ray_logs::_masked "$file" > "$2/${file##*/}"
        size=$(stat -c %s -- "$2/${file##*/}")
        kept=$((kept + size))
    done
}

# usage: ray_logs::_masked FILE
# Where a file is cut, what it begins with may be the second half of a secret, which nothing tells any more: it is read
# from a little before, masked, and cut then.
ray_logs::_masked() {
    if (($(stat -c %s -- "$1") <= LOGS_FILE_BYTES)); then
        tr -d '\000' < "$1" | secrets::mask
    else
        tail -c "$((LOGS_FILE_BYTES + SECRETS_LONGEST))" -- "$1" | tr -d '\000' | secrets::mask | tail -c "+$((SECRETS_LONGEST + 1))"
    fi
}
