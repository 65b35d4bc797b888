"""``python -m kerneljudge``: the command, without an installation."""

from __future__ import annotations

from kerneljudge.cli.app import main

if __name__ == "__main__":
    main()
