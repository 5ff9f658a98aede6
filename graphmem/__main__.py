"""``python -m graphmem``."""

from graphmem.cli import entry

if __name__ == "__main__":
    entry()
