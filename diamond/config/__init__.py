"""TOML files as validated objects: experiments, federations and their parts."""
