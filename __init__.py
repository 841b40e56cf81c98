"""mlxchat: an agent-chat runner on MLX that rewinds past dropped reasoning instead of prefilling again."""

__version__ = "0.1.0"
