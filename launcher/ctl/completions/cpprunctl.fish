# fish completion for cpprunctl
complete -c cpprunctl -f -n __fish_use_subcommand -a status -d 'what a job does'
complete -c cpprunctl -f -n __fish_use_subcommand -a stacks -d 'where its workers are'
complete -c cpprunctl -f -n __fish_use_subcommand -a explain -d 'why a run failed'
complete -c cpprunctl -n 'not __fish_use_subcommand' -a "(cpprunctl status 2>/dev/null | awk '\$1 + 0 { print \$1 }')"
complete -c cpprunctl -l json -d 'for programs'
complete -c cpprunctl -l help -d 'print how to use it'
complete -c cpprunctl -l version -d 'print the version'
