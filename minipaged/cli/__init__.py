"""The command `minipaged`. `main` finds the subcommand. Each subcommand is a module of the same name."""
