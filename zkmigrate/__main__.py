"""Run the command line: ``python -m zkmigrate``."""

from zkmigrate.cli.main import main

if __name__ == "__main__":
    main()
