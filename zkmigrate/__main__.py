"""``python -m zkmigrate``: the command line."""

from zkmigrate.cli import main

if __name__ == "__main__":
    main()
