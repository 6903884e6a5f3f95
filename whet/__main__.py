"""`python -m whet`: the command line, where its script is not on the path."""

from whet.cli.main import main

main()
