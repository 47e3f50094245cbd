"""The command `minipaged`: `main` finds the subcommand; each subcommand is a module of its name."""
