"""What workers do with submissions: claims with leases, diagnoses, verification, and withdrawal after the fact."""
