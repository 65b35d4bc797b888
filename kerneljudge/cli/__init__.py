"""The command ``kerneljudge``: its commands, their options and their output."""
