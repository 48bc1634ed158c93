# shellcheck shell=bash disable=SC2034,SC2153 # its variables are shared with the other libraries
# Requeues a job after a failure that another attempt may avoid, and handles Slurm's notice before the time limit.
# Slurm itself requeues after a node failure and a preemption, never because of an exit code. See docs/resume.md.
# Sets: JOB_RECORD, REQUEUE_AGAIN, REQUEUE_EXCLUDE, RUNDIR_VERDICT_ID, STAGE, VERLJOB_ATTEMPTS, VERLJOB_SAVE_TIMEOUT_S.

readonly REQUEUE_SHUTDOWN_S=30 # of the job's last seconds; verl_node/training/run.py has the same number
readonly REQUEUE_MAX_STALLED=3 # attempts in a row without a newer checkpoint
REQUEUE_AGAIN=false REQUEUE_EXCLUDE=''

# Checks VERLJOB_ATTEMPTS and handles Slurm's notice, which may have arrived already.
requeue::begin() {
    VERLJOB_ATTEMPTS=${VERLJOB_ATTEMPTS:-20} VERLJOB_SAVE_TIMEOUT_S=${VERLJOB_SAVE_TIMEOUT_S:-3600}
    local name
    for name in VERLJOB_ATTEMPTS VERLJOB_SAVE_TIMEOUT_S; do
        [[ ${!name} =~ ^[1-9][0-9]*$ ]] || fail 64 "$name is '${!name}'" "set it to a whole number from 1, or unset it"
    done
    trap 'requeue::on_notice || log::warn "could not pass Slurm'\''s notice to the training"' USR1
    [[ -z $NOTICE ]] || requeue::on_notice
}

# Tests whether the job was submitted with --requeue. Under salloc Slurm has no script that it could run again.
requeue::is_enabled() {
    [[ $(allocation::field Requeue) == 1 && $(allocation::field BatchFlag) == 1 ]]
}

# Handles Slurm's USR1, sent before it ends the job: if another attempt follows, writes the time until which the training
# may wait for a checkpoint.
requeue::on_notice() {
    local now end
    printf -v now '%(%s)T' -1
    if ! requeue::is_enabled || ((VERLJOB_ATTEMPT >= VERLJOB_ATTEMPTS)); then
        log::note "Slurm says that the job's time is nearly over"
        return 0
    fi
    end=$(allocation::end_time) # queried again: an operator may have moved it
    [[ $end =~ ^[0-9]+$ ]] || end=''
    local until=$((now + VERLJOB_SAVE_TIMEOUT_S))
    [[ -z $end ]] || ((end - REQUEUE_SHUTDOWN_S >= until)) || until=$((end - REQUEUE_SHUTDOWN_S))
    ownership::write "$VERLJOB_RUN_DIR/expires" printf '%s\n' "$until"
}

# Sets REQUEUE_AGAIN if the verdict is worth another attempt, as training's own code (stage `train`) never is.
requeue::decide() {
    [[ -z $ENDING && -n ${VERLJOB_ATTEMPTS:-} && -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    { [[ ${VERDICT[code]} == 7[56] && ${VERDICT[stage]} != train ]] || requeue::_find_bad_nodes; } || return 0
    JOB_RECORD=$(scontrol show job "$SLURM_JOB_ID") && requeue::is_enabled || return 0 # an operator may have changed it
    if ((VERLJOB_ATTEMPT >= VERLJOB_ATTEMPTS)); then
        log::note "this was attempt $VERLJOB_ATTEMPT of $VERLJOB_ATTEMPTS at most (VERLJOB_ATTEMPTS): the job is not requeued"
    elif requeue::_is_stalled; then
        STAGE=resume RUNDIR_VERDICT_ID='' # no node's verdict is the job's any more
        verdict::set 93 self "$REQUEUE_MAX_STALLED attempts in a row saved no newer checkpoint; the last: ${VERDICT[cause]}" \
            "set a lower trainer.save_freq, or fix the cause of the failures: $RUNDIR_JOB"
    else
        REQUEUE_AGAIN=true
        log::note "attempt $((VERLJOB_ATTEMPT + 1)) of $VERLJOB_ATTEMPTS at most follows: Slurm holds the job for about two minutes first"
    fi
}

# With VERLJOB_EXCLUDE_BAD=1, sets REQUEUE_EXCLUDE to the nodes that failed their checks.
requeue::_find_bad_nodes() {
    local text=''
    [[ ${VERLJOB_EXCLUDE_BAD:-} == 1 && ${VERDICT[code]} == 69 && ${VERDICT[stage]} == checks ]] || return 1
    REQUEUE_EXCLUDE=${VERDICT[host]}
    ! ownership::is_file "$VERLJOB_RUN_DIR/checks.json" || text=$(< "$VERLJOB_RUN_DIR/checks.json")
    [[ ! $text =~ \"exclude\":\ \"--exclude=([^\"]+)\" ]] || REQUEUE_EXCLUDE=${BASH_REMATCH[1]}
}

# Tests whether none of the last attempts left the file `checkpoint`.
requeue::_is_stalled() {
    local n
    ((VERLJOB_ATTEMPT >= REQUEUE_MAX_STALLED)) || return 1
    for ((n = VERLJOB_ATTEMPT; n > VERLJOB_ATTEMPT - REQUEUE_MAX_STALLED; n--)); do
        [[ ! -e $(run_dir::of_attempt "$n")/checkpoint ]] || return 1
    done
}

# Requeues the job, ignoring the TERM by which Slurm then ends this script.
requeue::again() {
    $REQUEUE_AGAIN || return 0
    trap '' TERM INT USR1
    scontrol requeue "$SLURM_JOB_ID" || log::warn "scontrol could not requeue job $SLURM_JOB_ID: requeue it manually"
    [[ -z $REQUEUE_EXCLUDE ]] || requeue::_exclude_nodes
}

# Slurm accepts the list for a pending job only, as this one is until Slurm ends the script.
requeue::_exclude_nodes() {
    local before
    before=$(allocation::field ExcNodeList)
    [[ $before != '(null)' ]] || before=''
    scontrol update "JobId=$SLURM_JOB_ID" "ExcNodeList=${before:+$before,}$REQUEUE_EXCLUDE" \
        || log::warn "scontrol could not exclude $REQUEUE_EXCLUDE: scontrol update JobId=$SLURM_JOB_ID ExcNodeList=$REQUEUE_EXCLUDE"
}
