"""The hand-over of work to workers: the Celery application, its transports, wake-ups, order and eligibility."""
