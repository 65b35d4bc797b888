"""``python -m kerneljudge``: the command, without its being installed."""

from __future__ import annotations

from kerneljudge.cli.app import main

if __name__ == "__main__":
    main()
