"""The processes that do the work: Celery tasks that claim, build or evaluate, and record.

One process for each device evaluates, and one builds. Torch stays in the processes that
``evaluator.engine`` starts.
"""
