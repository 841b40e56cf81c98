"""Tools that a model calls: what they are, who may run them, and the loop that runs them."""
