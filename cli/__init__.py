"""The command line: parsing, the REPL, rendering. Knows every other room; no other room knows it."""
