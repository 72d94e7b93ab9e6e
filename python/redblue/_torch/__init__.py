"""What redblue.torch is made of: torch's operators, their gradients, and redblue in the place of torch's function."""
