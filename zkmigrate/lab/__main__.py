"""Run the lab's commands as `python -m zkmigrate.lab`."""

from zkmigrate.lab.cli import lab

if __name__ == "__main__":
    lab()
