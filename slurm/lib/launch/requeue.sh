# shellcheck shell=bash disable=SC2034,SC2153 # what it sets and reads is shared with the other libraries
# Attempts of a job: the notice before its time limit, and whether it starts again.
# Slurm requeues after a node's failure and a preemption, but on no exit code. See docs/resume.md.
# Sets: JOB_RECORD, REQUEUE_AGAIN, REQUEUE_WITHOUT, RUNDIR_SPEAKER, STAGE, VERLJOB_ATTEMPTS, VERLJOB_SAVE_TIMEOUT_S.

readonly REQUEUE_ENDING_S=30 # of the job's last seconds: verl_node/training/run.py keeps the same
readonly REQUEUE_WITHOUT_PROGRESS=3
REQUEUE_AGAIN=false REQUEUE_WITHOUT=''

# Checks VERLJOB_ATTEMPTS and listens to Slurm's notice, which may have come already.
requeue::settings() {
    VERLJOB_ATTEMPTS=${VERLJOB_ATTEMPTS:-20} VERLJOB_SAVE_TIMEOUT_S=${VERLJOB_SAVE_TIMEOUT_S:-3600}
    local name
    for name in VERLJOB_ATTEMPTS VERLJOB_SAVE_TIMEOUT_S; do
        [[ ${!name} =~ ^[1-9][0-9]*$ ]] || fail 64 "$name is '${!name}'" "set it to a whole number from 1, or unset it"
    done
    trap 'requeue::notice || log::warn "Slurm'\''s notice could not be passed on"' USR1
    [[ -z $NOTICE ]] || requeue::notice
}

# usage: requeue::asked
# Whether the job was submitted with --requeue. From salloc there is no script that Slurm could run again.
requeue::asked() {
    [[ $(allocation::_field Requeue) == 1 && $(allocation::_field BatchFlag) == 1 ]]
}

# Slurm's USR1, some time before it ends the job: the training is told until when it may wait for a checkpoint, if there
# will be another attempt; else its last minutes are its own.
requeue::notice() {
    local now end
    printf -v now '%(%s)T' -1
    if ! requeue::asked || ((VERLJOB_ATTEMPT >= VERLJOB_ATTEMPTS)); then
        log::note "Slurm says that the job's time is nearly over"
        return 0
    fi
    end=$(allocation::end) # asked anew: an operator may have moved it
    [[ $end =~ ^[0-9]+$ ]] || end=''
    local until=$((now + VERLJOB_SAVE_TIMEOUT_S))
    [[ -z $end ]] || ((end - REQUEUE_ENDING_S >= until)) || until=$((end - REQUEUE_ENDING_S))
    ownership::write "$VERLJOB_RUN_DIR/expires" printf '%s\n' "$until"
}

# Sets REQUEUE_AGAIN where the verdict is worth another attempt and the job may have one. The stage decides: what
# training itself ended with is `train`, and no business of ours whatever the number.
requeue::decide() {
    [[ -z $ENDING && -n ${VERLJOB_ATTEMPTS:-} && -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    { [[ ${VERDICT[code]} == 7[56] && ${VERDICT[stage]} != train ]] || requeue::_without; } || return 0
    JOB_RECORD=$(scontrol show job "$SLURM_JOB_ID") && requeue::asked || return 0 # an operator may have changed it
    if ((VERLJOB_ATTEMPT >= VERLJOB_ATTEMPTS)); then
        log::note "this was attempt $VERLJOB_ATTEMPT of $VERLJOB_ATTEMPTS at most (VERLJOB_ATTEMPTS): the job is not requeued"
    elif requeue::_no_progress; then
        STAGE=resume RUNDIR_SPEAKER='' # the head's verdict is not the job's any more
        verdict::set 93 self "$REQUEUE_WITHOUT_PROGRESS attempts in a row saved no newer checkpoint; the last: ${VERDICT[cause]}" \
            "a lower trainer.save_freq, or whatever ended them: $RUNDIR_JOB"
    else
        REQUEUE_AGAIN=true
        log::note "attempt $((VERLJOB_ATTEMPT + 1)) of $VERLJOB_ATTEMPTS at most follows: Slurm holds the job for about two minutes first"
    fi
}

# Whether nodes that failed their checks are to be left out of another attempt (VERLJOB_EXCLUDE_BAD); sets REQUEUE_WITHOUT.
requeue::_without() {
    local text=''
    [[ ${VERLJOB_EXCLUDE_BAD:-} == 1 && ${VERDICT[code]} == 69 && ${VERDICT[stage]} == checks ]] || return 1
    REQUEUE_WITHOUT=${VERDICT[host]}
    ! ownership::file "$VERLJOB_RUN_DIR/checks.json" || text=$(< "$VERLJOB_RUN_DIR/checks.json")
    [[ ! $text =~ \"exclude\":\ \"--exclude=([^\"]+)\" ]] || REQUEUE_WITHOUT=${BASH_REMATCH[1]}
}

# An attempt that saved something has left a note of it.
requeue::_no_progress() {
    local n
    ((VERLJOB_ATTEMPT >= REQUEUE_WITHOUT_PROGRESS)) || return 1
    for ((n = VERLJOB_ATTEMPT; n > VERLJOB_ATTEMPT - REQUEUE_WITHOUT_PROGRESS; n--)); do
        [[ ! -e $(run_dir::of_attempt "$n")/checkpoint ]] || return 1
    done
}

# The last act: Slurm ends this script for it, and what it is still doing: TERM is not for that.
requeue::again() {
    $REQUEUE_AGAIN || return 0
    trap '' TERM INT USR1
    scontrol requeue "$SLURM_JOB_ID" || log::warn "scontrol could not requeue job $SLURM_JOB_ID: do it by hand"
    [[ -z $REQUEUE_WITHOUT ]] || requeue::_exclude
}

# Slurm changes the list of a job that waits, not of one that runs: until it ends this script, this job does both.
requeue::_exclude() {
    local before
    before=$(allocation::_field ExcNodeList)
    [[ $before != '(null)' ]] || before=''
    scontrol update "JobId=$SLURM_JOB_ID" "ExcNodeList=${before:+$before,}$REQUEUE_WITHOUT" \
        || log::warn "scontrol could not exclude $REQUEUE_WITHOUT: scontrol update JobId=$SLURM_JOB_ID ExcNodeList=$REQUEUE_WITHOUT"
}
