"""Run the command line as `python -m fedpareto`."""

import sys

from fedpareto.cli import main

if not sys.flags.safe_path and sys.path and __spec__ is not None:
    # Python put the folder one is in first: files there, named like a library, would run
    del sys.path[0]
main()
