"""The interface of flash_attn: its functions, its caches of keys, and redblue in its place."""
