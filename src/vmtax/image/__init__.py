"""The root image: built once, cached by content, the same userland on every layer."""
