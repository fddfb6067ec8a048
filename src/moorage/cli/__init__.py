"""The command line: one module per command, each importing its work late so that --help costs nothing."""
