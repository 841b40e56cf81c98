"""Models, prompts, sequences, prefill and decode, and the one thread that runs MLX."""
