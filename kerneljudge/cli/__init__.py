"""The command ``kerneljudge``: its commands, their options, and what they print."""
