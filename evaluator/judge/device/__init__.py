"""The device as the judge uses it: idle, with cold caches, monitored, and with known peak rates."""
