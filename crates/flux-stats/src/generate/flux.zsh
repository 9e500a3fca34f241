
# `flux stats …`. This file is autoloaded for both commands; what else `flux` can be completed with is left to Flux's own
# function, where there is one.
_flux_stats_of_flux() {
    local at=2
    while (( at < CURRENT )) && [[ ${words[at]} == -* ]]; do
        (( at += 1 ))
    done
    if (( at < CURRENT )) && [[ ${words[at]} == stats ]]; then
        words=(flux-stats "${(@)words[at+1,-1]}")
        (( CURRENT -= at - 1 ))
        _flux-stats "$@"
    elif (( $+functions[_flux] )) || autoload -Uz +X _flux 2>/dev/null; then
        _flux "$@"
    else
        _default "$@"
    fi
}
# From the first use on the functions are called themselves; another's function for `flux` stays.
compdef _flux-stats flux-stats
if [[ ${_comps[flux]:-_flux-stats} == _flux-stats ]]; then
    compdef _flux_stats_of_flux flux
fi
if [[ $funcstack[1] == _flux-stats ]]; then
    if [[ $service == flux ]]; then
        _flux_stats_of_flux "$@"
    else
        _flux-stats "$@"
    fi
fi
