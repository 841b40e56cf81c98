"""KV checkpoints: blocks, records, scratch file, planning and restoring. Knows ids, cache objects and bytes only."""
