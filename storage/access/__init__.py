"""Who may do and see what: API keys, visibility, quotas, and a record of what was done."""
