
# `flux stats …`: Flux has no completion of its own for zsh.
_flux_stats_of_flux() {
    if [[ ${words[2]} == stats ]] && (( CURRENT > 2 )); then
        shift words
        (( CURRENT -= 1 ))
        words[1]=flux-stats
        _flux-stats "$@"
    else
        _default
    fi
}
compdef _flux_stats_of_flux flux
