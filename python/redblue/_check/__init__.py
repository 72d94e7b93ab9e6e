"""The referee of attention over ranks that anyone wrote, redblue.distributed.check."""
