"""What a user sees, each verb against the oracle."""
