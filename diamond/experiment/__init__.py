"""From a TOML file to runs on disk."""
