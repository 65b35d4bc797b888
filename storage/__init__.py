"""Tables, sessions, queries, migrations and the hand-over to the queue; shared by the API and the workers.

The database is the truth and the queue only a bell: a submission is durable when its row is committed,
and a message carries nothing but its id.
"""
