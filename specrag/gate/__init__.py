"""Whether to retrieve: signals, policy, calibration."""
