"""What every call passes through: its arrays, options and settings, and the plan that is remembered for the next."""
