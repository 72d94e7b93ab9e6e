"""What redblue.distributed is made of."""
