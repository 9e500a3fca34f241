
# `flux stats …`: what fish would propose for flux-stats with the same words.
function __flux_stats_of_flux
    set -l words (commandline -opc)
    complete -C "flux-stats $words[3..] "(commandline -ct)
end
complete -c flux -n '__fish_seen_subcommand_from stats' -f -a '(__flux_stats_of_flux)'
