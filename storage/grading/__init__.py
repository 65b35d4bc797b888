"""The grading of submissions by workers: claims with leases, diagnoses, verification, and later withdrawal."""
