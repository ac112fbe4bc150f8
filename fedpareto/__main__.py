"""Run the command line as `python -m fedpareto`."""

from fedpareto.cli import main

main()
