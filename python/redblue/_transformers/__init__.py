"""What Hugging Face transformers calls by attn_implementation="redblue"."""
