"""``python -m zkmigrate``: the command line."""

from zkmigrate.cli.main import main

if __name__ == "__main__":
    main()
