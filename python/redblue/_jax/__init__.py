"""What redblue.jax is made of."""
