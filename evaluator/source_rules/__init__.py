"""Rules about a candidate's source that decide: a broken one is the verdict ``rejected``, before anything is built.

A problem has rules, and a request may add some. The source is parsed, never executed: an author who means to can hide
a call from these rules. ``evaluator.source_rules.hiding`` has the ways of hiding that count as a break.
"""
