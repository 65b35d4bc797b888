"""Access control: API keys, visibility, quotas, and the audit trail."""
