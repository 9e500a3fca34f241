
# `flux stats …`: Flux's own completion knows no commands that others add, so its function is called through this one.
# It may be loaded after this file, when `flux` is completed for the first time.
_flux_stats_of_flux() {
    local at=1
    while [[ ${COMP_WORDS[at]} == -* && $at -lt $COMP_CWORD ]]; do
        at=$((at + 1))
    done
    if [[ ${COMP_WORDS[at]} == stats && $at -lt $COMP_CWORD ]]; then
        COMP_WORDS=(flux-stats "${COMP_WORDS[@]:at+1}")
        COMP_CWORD=$((COMP_CWORD - at))
        _flux_stats flux-stats "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        return
    fi
    if ! declare -F _flux_core >/dev/null; then
        if declare -F _comp_load >/dev/null; then
            _comp_load -- flux >/dev/null 2>&1
        elif declare -F __load_completion >/dev/null; then
            __load_completion flux >/dev/null 2>&1
        fi
        complete -F _flux_stats_of_flux flux
    fi
    if declare -F _flux_core >/dev/null; then
        _flux_core "$@"
    fi
}
complete -F _flux_stats_of_flux flux
