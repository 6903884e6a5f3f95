"""The command line: one file per command.  Only this room knows typer and rich."""
