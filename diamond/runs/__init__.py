"""What a run leaves behind: an object, a folder (`config.toml`, `manifest.json`, `metrics.jsonl`,
`checkpoint/`), a picture.
"""
