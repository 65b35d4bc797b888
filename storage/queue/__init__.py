"""Handing work to workers: the Celery application, its transports, wake-ups, and who takes up what."""
