"""``python -m client``: the command, without its being installed."""

from __future__ import annotations

from client.cli import main

if __name__ == "__main__":
    main()
